// chaos: lets workers of a running job fail, so that users see what their script does then.
#include <csignal>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/flag_value.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr int64_t kMost = 1'000'000;

struct Plan {
  int signo = 0;
  std::optional<int> rank;  // nullopt: any that runs
  Duration every{0};        // 0: once
  int64_t times = 1;
  uint64_t seed = 0;
};

absl::StatusOr<Plan> MakePlan(const ChaosFlags& flags) {
  if (flags.kill_rank.has_value() == flags.stop_rank.has_value()) {
    return absl::InvalidArgumentError("chaos: give one of --kill-rank and --stop-rank");
  }
  Plan plan;
  plan.signo = flags.kill_rank.has_value() ? SIGKILL : SIGSTOP;
  const std::string& rank = flags.kill_rank.has_value() ? *flags.kill_rank : *flags.stop_rank;
  if (rank != "any") {
    const absl::StatusOr<int64_t> number = ParseInteger(rank, 0, kMost);
    if (!number.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flags.kill_rank.has_value() ? "--kill-rank: " : "--stop-rank: ",
                       number.status().message(), ", or any"));
    }
    plan.rank = static_cast<int>(*number);
  }
  if (flags.every.has_value()) {
    absl::StatusOr<Duration> every = ParseDuration(*flags.every);
    if (!every.ok() || *every <= Duration(0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--every: found \"", *flags.every, "\", expected a time such as 30s"));
    }
    plan.every = *every;
    plan.times = kMost;
  }
  if (flags.times.has_value()) {
    const absl::StatusOr<int64_t> times = ParseInteger(*flags.times, 1, kMost);
    if (!times.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--times: ", times.status().message()));
    }
    plan.times = *times;
  }
  plan.seed = std::random_device()();
  if (flags.seed.has_value()) {
    const absl::StatusOr<int64_t> seed = ParseInteger(*flags.seed, 0, INT64_MAX);
    if (!seed.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--seed: ", seed.status().message()));
    }
    plan.seed = static_cast<uint64_t>(*seed);
  }
  return plan;
}

std::vector<int> RunningRanks(const JobDescription& job) {
  std::vector<int> ranks;
  for (const WorkerState& worker : job.workers) {
    if (worker.running) ranks.push_back(worker.rank);
  }
  return ranks;
}

// Waits until workers run, for a job that is restarting has none; the rank that was hit, nullopt if
// the job is over.
absl::StatusOr<std::optional<int>> Hit(JobClient* client, const KnownJob& job, const Plan& plan,
                                       std::mt19937_64* random) {
  for (;;) {
    absl::StatusOr<JobDescription> description = client->Describe();
    if (!description.ok()) {
      if (IsOver(job)) return std::nullopt;
      return description.status();
    }
    const std::vector<int> running = RunningRanks(*description);
    if (description->view.phase == JobPhase::kRunning && !running.empty()) {
      const int rank = plan.rank.value_or(
          running[std::uniform_int_distribution<size_t>(0, running.size() - 1)(*random)]);
      RETURN_IF_ERROR(client->Signal(plan.signo, {rank}));
      Console().Out(absl::StrCat(plan.signo == SIGKILL ? "killed" : "stopped", " rank ", rank,
                                 " of epoch ", description->view.epoch.value, "\n"));
      return rank;
    }
    std::this_thread::sleep_for(milliseconds(100));
  }
}

}  // namespace

int RunChaos(const ChaosFlags& flags) {
  const absl::StatusOr<Plan> plan = MakePlan(flags);
  if (!plan.ok()) return Fail(plan.status());
  const absl::StatusOr<KnownJob> job = FindJob(StateFolder(), flags.job);
  if (!job.ok()) return Fail(job.status());
  if (IsOver(*job)) {
    return Fail(absl::NotFoundError(absl::StrCat("job ", job->id, " is already over")));
  }
  JobClient client(JobSocket(job->id));
  std::mt19937_64 random(plan->seed);
  for (int64_t i = 0; i < plan->times; ++i) {
    if (i > 0) std::this_thread::sleep_for(plan->every);
    const absl::StatusOr<std::optional<int>> hit = Hit(&client, *job, *plan, &random);
    if (!hit.ok()) return Fail(hit.status());
    if (!hit->has_value()) return kExitDone;
  }
  return kExitDone;
}

}  // namespace trainctl

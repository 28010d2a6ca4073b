// chaos: lets workers and nodes of a running job fail, so that users see what their script does
// then.
#include <algorithm>
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
  int signo = 0;                    // 0: a node is killed
  std::optional<int> rank;          // nullopt: any that runs
  std::optional<std::string> node;  // nullopt: any but the coordinator's
  Duration delay{0};                // from SIGSTOP to SIGCONT; 0: for ever
  Duration every{0};                // 0: once
  int64_t times = 1;
  uint64_t seed = 0;
};

absl::StatusOr<Duration> ReadTime(absl::string_view flag, const std::string& text) {
  absl::StatusOr<Duration> time = ParseDuration(text);
  if (time.ok() && *time > Duration(0)) return time;
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": found \"", text, "\", expected a time such as 30s"));
}

// Who is hit, and how.
absl::Status ReadTarget(const ChaosFlags& flags, Plan* plan) {
  const int targets = (flags.kill_rank ? 1 : 0) + (flags.kill_node ? 1 : 0) +
                      (flags.stop_rank || flags.delay ? 1 : 0);
  if (targets != 1) {
    return absl::InvalidArgumentError(
        "chaos: give one of --kill-rank, --stop-rank, --delay and --kill-node (--delay may go with "
        "--stop-rank)");
  }
  if (flags.kill_node.has_value()) {
    if (*flags.kill_node != "any") plan->node = *flags.kill_node;
    return absl::OkStatus();
  }
  plan->signo = flags.kill_rank.has_value() ? SIGKILL : SIGSTOP;
  if (flags.delay.has_value()) {
    ASSIGN_OR_RETURN(plan->delay, ReadTime("--delay", *flags.delay));
  }
  const std::string rank = flags.kill_rank.value_or(flags.stop_rank.value_or("any"));
  if (rank == "any") return absl::OkStatus();
  const absl::StatusOr<int64_t> number = ParseInteger(rank, 0, kMost);
  if (!number.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        flags.kill_rank.has_value() ? "--kill-rank: " : "--stop-rank: ", number.status().message(),
        ", or any"));
  }
  plan->rank = static_cast<int>(*number);
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const ChaosFlags& flags) {
  Plan plan;
  RETURN_IF_ERROR(ReadTarget(flags, &plan));
  if (flags.every.has_value()) {
    ASSIGN_OR_RETURN(plan.every, ReadTime("--every", *flags.every));
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

absl::Status HitRank(JobClient* client, const JobDescription& job, const Plan& plan, int rank) {
  RETURN_IF_ERROR(client->Signal(plan.signo, {rank}));
  const char* done = plan.signo == SIGKILL ? "killed" : "stopped";
  const std::string epoch = absl::StrCat(" rank ", rank, " of epoch ", job.view.epoch.value, "\n");
  Console().Out(absl::StrCat(done, epoch));
  if (plan.delay == Duration(0)) return absl::OkStatus();
  std::this_thread::sleep_for(plan.delay);
  // A worker that is gone needs no waking.
  const absl::Status woken = client->Signal(SIGCONT, {rank});
  if (!woken.ok() && !absl::IsFailedPrecondition(woken)) return woken;
  Console().Out(absl::StrCat("continued", epoch));
  return absl::OkStatus();
}

absl::Status HitNode(JobClient* client, const JobDescription& job, const Plan& plan,
                     std::mt19937_64* random) {
  std::vector<std::string> nodes;
  for (const NodeView& node : job.view.nodes) {
    if (node.standing == NodeStanding::kMember) nodes.push_back(node.node);
  }
  std::shuffle(nodes.begin(), nodes.end(), *random);
  if (plan.node.has_value()) nodes = {*plan.node};
  absl::Status killed = absl::NotFoundError("the job has no node that could be killed");
  for (const std::string& node : nodes) {
    killed = client->KillNode(node);
    if (killed.ok()) {
      Console().Out(absl::StrCat("killed node ", node, " in epoch ", job.view.epoch.value, "\n"));
    }
    // The coordinator's own is not for "any".
    if (!absl::IsFailedPrecondition(killed)) break;
  }
  return killed;
}

// Waits until workers run, for a job that is restarting has none. False: the job is over.
absl::StatusOr<bool> Hit(JobClient* client, const KnownJob& job, const Plan& plan,
                         std::mt19937_64* random) {
  for (;;) {
    absl::StatusOr<JobDescription> description = client->Describe();
    if (!description.ok()) {
      if (IsOver(job)) return false;
      return description.status();
    }
    const std::vector<int> running = RunningRanks(*description);
    if (description->view.phase == JobPhase::kRunning && !running.empty()) {
      if (plan.signo == 0) {
        RETURN_IF_ERROR(HitNode(client, *description, plan, random));
        return true;
      }
      const int rank = plan.rank.value_or(
          running[std::uniform_int_distribution<size_t>(0, running.size() - 1)(*random)]);
      RETURN_IF_ERROR(HitRank(client, *description, plan, rank));
      return true;
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
    const absl::StatusOr<bool> hit = Hit(&client, *job, *plan, &random);
    if (!hit.ok()) return Fail(hit.status());
    if (!*hit) return kExitDone;
  }
  return kExitDone;
}

}  // namespace trainctl

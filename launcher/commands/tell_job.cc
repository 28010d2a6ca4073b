#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/flag_value.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "runtime/base/places.h"

namespace trainctl {
namespace {

absl::StatusOr<KnownJob> FindRunningJob(const std::string& word) {
  absl::StatusOr<KnownJob> job = FindJob(StateFolder(), word);
  if (job.ok() && IsOver(*job)) {
    return absl::NotFoundError(absl::StrCat("job ", job->id, " is already over; trainctl status ",
                                            job->id, " shows how it ended"));
  }
  return job;
}

// `done`: what the job was asked, for the person who asked.
int Tell(const std::string& word, const std::function<absl::Status(JobClient*)>& call,
         absl::string_view done) {
  const absl::StatusOr<KnownJob> job = FindRunningJob(word);
  if (!job.ok()) {
    return Fail(job.status());
  }
  JobClient client(JobSocket(job->id));
  const absl::Status told = call(&client);
  if (absl::IsUnavailable(told)) {
    return Fail(absl::UnavailableError(
        absl::StrCat("job ", job->id, " was interrupted, nothing of it listens (", told.message(),
                     "); trainctl resume ", job->id, " goes on with it")));
  }
  if (!told.ok()) {
    return Fail(told);
  }
  Console().Err(absl::StrCat("trainctl: asked job ", job->id, " ", done, "\n"));
  return kExitDone;
}

}  // namespace

int RunStop(const JobFlags& flags) {
  StopAsked order;
  order.by = "trainctl stop";
  order.checkpoint = flags.checkpoint;
  order.now = flags.now;
  const char* done = order.now          ? "to kill its workers and end"
                     : order.checkpoint ? "to save a checkpoint and then end"
                                        : "to stop; its workers are killed when the grace is over";
  return Tell(
      flags.job, [&](JobClient* client) { return client->Stop(order); }, done);
}

int RunSignal(const JobFlags& flags) {
  absl::StatusOr<int> signo = ParseSignal(*flags.signal);
  if (!signo.ok()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("SIGNAL: ", signo.status().message())));
  }
  std::vector<int> ranks;
  if (flags.ranks.has_value()) {
    absl::StatusOr<std::vector<int>> listed = ParseRankList(*flags.ranks);
    if (!listed.ok()) {
      return Fail(absl::InvalidArgumentError(absl::StrCat("--rank: ", listed.status().message())));
    }
    ranks = *std::move(listed);
  }
  const char* name = sigabbrev_np(*signo);
  return Tell(
      flags.job, [&](JobClient* client) { return client->Signal(*signo, ranks); },
      absl::StrCat("to send ", name ? absl::StrCat("SIG", name) : absl::StrCat("signal ", *signo),
                   ranks.empty() ? " to every worker" : absl::StrCat(" to rank ", *flags.ranks)));
}

}  // namespace trainctl

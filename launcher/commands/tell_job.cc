#include <functional>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/flag_value.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "runtime/base/places.h"

namespace trainctl {
namespace {

// The job's coordinator, or why there is none to talk to.
absl::StatusOr<std::string> RunningJobSocket(const std::string& word) {
  absl::StatusOr<KnownJob> job = FindJob(StateFolder(), word);
  if (!job.ok()) {
    return job.status();
  }
  if (IsOver(*job)) {
    return absl::NotFoundError(absl::StrCat("job ", job->id, " is already over"));
  }
  return JobSocket(job->id);
}

int Tell(const std::string& word, const std::function<absl::Status(JobClient*)>& call) {
  absl::StatusOr<std::string> socket = RunningJobSocket(word);
  if (!socket.ok()) {
    return Fail(socket.status());
  }
  JobClient client(*socket);
  const absl::Status told = call(&client);
  return told.ok() ? kExitDone : Fail(told);
}

}  // namespace

int RunStop(const JobFlags& flags) {
  StopAsked order;
  order.by = "trainctl stop";
  order.checkpoint = flags.checkpoint;
  order.now = flags.now;
  return Tell(flags.job, [&](JobClient* client) { return client->Stop(order); });
}

int RunSignal(const JobFlags& flags) {
  absl::StatusOr<int> signo = ParseSignal(*flags.signal);
  if (!signo.ok()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("SIGNAL: ", signo.status().message())));
  }
  return Tell(flags.job, [&](JobClient* client) { return client->Signal(*signo); });
}

}  // namespace trainctl

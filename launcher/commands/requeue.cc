#include "launcher/commands/requeue.h"

#include <sys/wait.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/program.h"
#include "runtime/base/status.h"

namespace trainctl {

absl::Status RequeueJob(const NodeIdentity& identity) {
  if (identity.scheduler != "Slurm") {
    return absl::UnimplementedError(absl::StrCat("requeue a job of ", identity.scheduler));
  }
  const std::string job = identity.job_id.substr(0, identity.job_id.find('.'));  // not the step
  ASSIGN_OR_RETURN(const Child child,
                   StartProgram({"/usr/bin/env", "scontrol", "requeue", job}, StartOptions()));
  int how = 0;
  while (waitpid(child.pid, &how, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("scontrol requeue ", job,
                                                    " did not succeed; end the job with scancel ",
                                                    job, " and submit it again"));
}

}  // namespace trainctl

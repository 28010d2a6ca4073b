#include "launcher/commands/exit_status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/update_json.h"
#include "runtime/base/fd.h"

namespace trainctl {
namespace {

bool tell_errors_as_json = false;

}  // namespace

int ExitStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnreachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitNotAuthorised;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
      return kExitNotFit;
    default:
      return kExitFailed;
  }
}

int Fail(const absl::Status& status) {
  const int exit_status = ExitStatusOf(status);
  WriteAll(2, absl::StrCat("trainctl: ", status.message(), "\n"), "stderr").IgnoreError();
  if (tell_errors_as_json) {
    WriteAll(1, ErrorJson(exit_status, status.message()), "stdout").IgnoreError();
  }
  return exit_status;
}

void TellErrorsAsJson() { tell_errors_as_json = true; }

}  // namespace trainctl

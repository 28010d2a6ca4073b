// What a worker says went wrong: the error.json that it may leave behind, in the format of
// PyTorch's elastic launcher, and the end of a traceback. Pure.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_ERROR_JSON_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_ERROR_JSON_H_

#include <string>

#include "absl/strings/string_view.h"

namespace trainctl {

// The first line of its message, such as "ValueError: no such data". Accepts both
// {"message": {"message": "…"}} and {"message": "…"}; empty for anything else.
std::string ErrorMessage(absl::string_view error_json);

// What a worker that knows more than its exit status can tell adds as
// {"message": {"message": "…", "extraInfo": {"class": "hang", "rank": 1}}}.
struct ErrorCause {
  std::string failure_class;  // as FailureClassName; empty: not told
  int rank = -1;              // that caused it, if it is not the one that tells
};
ErrorCause CauseOf(absl::string_view error_json);

// "ValueError: no such data", as a traceback of Python ends.
bool IsErrorLine(absl::string_view line);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_ERROR_JSON_H_

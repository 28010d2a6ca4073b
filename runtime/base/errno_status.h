// The one place where errno becomes a Status.
#ifndef TRAINCTL_RUNTIME_BASE_ERRNO_STATUS_H_
#define TRAINCTL_RUNTIME_BASE_ERRNO_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// "<what>: <strerror(error)>". `what` says what was being done, and to what: "open /a/b for
// writing".
absl::Status ErrnoStatus(int error, absl::string_view what);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_ERRNO_STATUS_H_

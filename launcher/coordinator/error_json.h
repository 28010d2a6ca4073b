// The error.json that a worker may leave behind, in the format of PyTorch's elastic launcher. Pure.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_ERROR_JSON_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_ERROR_JSON_H_

#include <string>

#include "absl/strings/string_view.h"

namespace trainctl {

// The first line of its message, such as "ValueError: no such data". Accepts both
// {"message": {"message": "…"}} and {"message": "…"}; empty for anything else.
std::string ErrorMessage(absl::string_view error_json);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_ERROR_JSON_H_

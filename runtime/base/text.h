// Text from outside.
#ifndef TRAINCTL_RUNTIME_BASE_TEXT_H_
#define TRAINCTL_RUNTIME_BASE_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace trainctl {

// `text` with every byte that is not part of valid UTF-8 replaced by '?'.
std::string ValidUtf8(absl::string_view text);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_TEXT_H_

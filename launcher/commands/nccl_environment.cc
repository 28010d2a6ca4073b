#include "launcher/commands/nccl_environment.h"

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace trainctl {

std::map<std::string, std::string> NcclEnvironment() {
  std::map<std::string, std::string> settings;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const size_t equals = text.find('=');
    if (absl::StartsWith(text, "NCCL_") && equals != absl::string_view::npos) {
      settings.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return settings;
}

}  // namespace trainctl

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/help_text.h"

namespace trainctl {

int RunVersion(const JobFlags& flags) {
  Console console;
  console.Out(flags.json ? "{\"schema\": 1, \"type\": \"version\", \"version\": \"" TRAINCTL_VERSION
                           "\"}\n"
                         : "trainctl " TRAINCTL_VERSION "\n");
  return kExitDone;
}

int RunCompletion(const std::string& shell) {
  Console console;
  console.Out(shell == "zsh" ? ZshCompletion(DescribeVerbs()) : BashCompletion(DescribeVerbs()));
  return kExitDone;
}

int RunManualPage() {
  Console console;
  console.Out(ManualPage(DescribeVerbs()));
  return kExitDone;
}

}  // namespace trainctl

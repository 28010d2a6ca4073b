#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "runtime/security/cluster_key.h"

namespace trainctl {

int RunKey(const KeyFlags& flags) {
  const std::string path = flags.path.value_or(::geteuid() == 0 ? SystemKeyPath() : UserKeyPath());
  if (const absl::Status made = WriteNewKey(path); !made.ok()) {
    return Fail(made);
  }
  Console console;
  console.Err(absl::StrCat(
      "new cluster key in ", path,
      "; whoever can read it may run anything as its owner on every node that has it.\nCopy it to "
      "the other nodes:  scp -p ",
      path, " NODE:", path, "\n"));
  console.Out(absl::StrCat(path, "\n"));
  return kExitDone;
}

}  // namespace trainctl

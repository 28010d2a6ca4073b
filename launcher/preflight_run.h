// Runs the children of a preflight. One that gives no sign of life for some time is killed, so that
// a GPU that hangs never hangs us. Reads nothing of what they say.
#ifndef TRAINCTL_LAUNCHER_PREFLIGHT_RUN_H_
#define TRAINCTL_LAUNCHER_PREFLIGHT_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/preflight_findings.h"
#include "runtime/base/time.h"

namespace trainctl {

class PreflightChildren {
 public:
  // `program`: path of train-preflight. A folder of its own holds what the children write.
  static absl::StatusOr<PreflightChildren> Make(std::string program, Duration patience);
  PreflightChildren(PreflightChildren&& other) noexcept;
  PreflightChildren& operator=(PreflightChildren&&) = delete;
  ~PreflightChildren();  // removes the folder

  // One child for each list of words, all at once; in that order. When one hangs, all that are left
  // are killed, since they wait for it.
  absl::StatusOr<std::vector<ChildOutput>> Run(const std::vector<std::vector<std::string>>& words);
  absl::StatusOr<ChildOutput> Run(const std::vector<std::string>& words);

  // A folder for the next children's exchange, new at each call.
  absl::StatusOr<std::string> MakeFolder();

 private:
  PreflightChildren(std::string program, Duration patience, std::string folder);

  std::string program_;
  Duration patience_;
  std::string folder_;  // empty: moved away
  int runs_ = 0;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_PREFLIGHT_RUN_H_

#include <dirent.h>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "launcher/launch_request.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/places.h"
#include "runtime/base/program.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

int CountGpus() {
  DIR* folder = opendir("/proc/driver/nvidia/gpus");
  if (folder == nullptr) {
    return 0;
  }
  int gpus = 0;
  while (const dirent* entry = readdir(folder)) {
    gpus += entry->d_name[0] == '.' ? 0 : 1;
  }
  closedir(folder);
  if (const char* visible = getenv("CUDA_VISIBLE_DEVICES")) {
    int chosen = 0;
    for (absl::string_view device : absl::StrSplit(visible, ',')) {
      device = absl::StripAsciiWhitespace(device);
      if (device.empty() || device[0] == '-') {
        break;  // as CUDA does: nothing after an invalid device is seen
      }
      ++chosen;
    }
    gpus = std::min(gpus, chosen);
  }
  return gpus;
}

int CountCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return std::max(1, CPU_COUNT(&set));
  }
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string RandomSuffix() {
  constexpr char kLetters[] = "23456789abcdefghijkmnpqrstuvwxyz";  // none that look alike
  uint8_t random[6] = {};
  size_t filled = 0;
  while (filled < sizeof random) {
    const ssize_t n = getrandom(random + filled, sizeof random - filled, 0);
    filled += n > 0 ? static_cast<size_t>(n) : 0;
  }
  std::string suffix;
  for (uint8_t byte : random) {
    suffix += kLetters[byte % 32];
  }
  return suffix;
}

}  // namespace

absl::StatusOr<Surroundings> SurroundingsNow() {
  Surroundings now;
  char* cwd = getcwd(nullptr, 0);
  if (cwd == nullptr) {
    return absl::FailedPreconditionError(ErrnoStatus(errno, "find the current folder").message());
  }
  now.cwd = cwd;
  free(cwd);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    now.env.emplace_back(*entry);
  }
  now.state_folder = StateFolder();
  if (now.state_folder.front() != '/') {
    return absl::FailedPreconditionError(
        "cannot keep the job's state: neither HOME nor XDG_STATE_HOME is an absolute path");
  }
  now.id_suffix = RandomSuffix();
  now.gpus = CountGpus();
  now.cpus = CountCpus();
  if (absl::StatusOr<std::string> trainer = FindProgram("train-worker"); trainer.ok()) {
    now.trainer = *trainer;
  }
  return now;
}

}  // namespace trainctl

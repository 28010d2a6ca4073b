#include <dirent.h>
#include <linux/mempolicy.h>
#include <netdb.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/launch_request.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/network.h"
#include "runtime/base/places.h"
#include "runtime/base/program.h"
#include "runtime/base/status.h"
#include "runtime/topology/probe.h"

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

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return cpus;
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) {
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

bool HasMemoryPolicy() {
  int policy = MPOL_DEFAULT;
  return syscall(SYS_get_mempolicy, &policy, nullptr, 0UL, nullptr, 0UL) == 0 &&
         policy != MPOL_DEFAULT;
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

std::string MachineName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// With the domain, as /etc/hosts or the name server has it; empty if they do not.
std::string FullName() {
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(MachineName().c_str(), nullptr, &hints, &list) != 0) {
    return "";
  }
  const std::string name = list->ai_canonname == nullptr ? "" : list->ai_canonname;
  freeaddrinfo(list);
  return name;
}

bool IsThisMachine(const std::string& name) {
  if (IsLiteralAddress(name)) {
    return IsOwnAddress(name);
  }
  const std::string own = MachineName();
  if (name == own || absl::StartsWith(name, absl::StrCat(own, ".")) ||
      absl::StartsWith(own, absl::StrCat(name, "."))) {
    return true;
  }
  const absl::StatusOr<std::vector<std::string>> addresses = Resolve(name);
  return addresses.ok() && std::any_of(addresses->begin(), addresses->end(), IsOwnAddress);
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
  std::map<std::string, std::string> environment;
  for (const std::string& entry : now.env) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos)
      environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  // Only pods need their full name, and finding it may ask a name server.
  const bool in_pod = environment.count("JOB_COMPLETION_INDEX") != 0;
  ASSIGN_OR_RETURN(now.scheduler, IdentifyNode(environment, in_pod ? FullName() : ""));
  now.is_own_name = IsThisMachine;
  now.gpus = CountGpus();
  now.cpus = CountCpus();
  now.topology = ProbeTopology;
  now.allowed_cpus = AllowedCpus();
  now.has_memory_policy = HasMemoryPolicy();
  now.interfaces = FolderEntries("/sys/class/net");
  if (absl::StatusOr<std::string> trainer = FindProgram("train-worker"); trainer.ok()) {
    now.trainer = *trainer;
  }
  return now;
}

}  // namespace trainctl

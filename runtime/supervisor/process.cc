#include "runtime/supervisor/process.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";

std::optional<rlimit> original_descriptor_limit;  // set once, before the first fork

enum class Stage : int32_t { kEnterCgroup, kPrepare, kChangeFolder, kExecute };

struct Failure {  // what a child writes when it cannot become the program
  int32_t error;
  Stage stage;
  int32_t candidate;  // index into Candidates()
};

std::vector<std::string> Candidates(const ProcessSpec& spec) {
  const std::string& program = spec.argv[0];
  if (program.find('/') != std::string::npos) return {program};
  const absl::string_view path = EnvironmentValue(spec.environment, "PATH");
  std::vector<std::string> candidates;
  for (absl::string_view folder : absl::StrSplit(path.empty() ? kDefaultPath : path, ':')) {
    candidates.push_back(absl::StrCat(folder.empty() ? "." : folder, "/", program));
  }
  return candidates;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<std::pair<Fd, Fd>> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return ErrnoStatus(errno, "create pipe for a worker");
  std::pair<Fd, Fd> pipe{Fd(ends[0]), Fd(ends[1])};
  RETURN_IF_ERROR(SetNonBlocking(pipe.first.get()));
  return pipe;
}

void ResetSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signo = 1; signo < NSIG; ++signo) ::sigaction(signo, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// RDMA registers memory, which counts as locked; the usual soft limit of 8 MiB ends it late and
// obscurely.
void LockAllMemoryAllowed() {
  rlimit limit;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_MEMLOCK, &limit);
}

// A daemon that the kernel should spare for want of memory hands that on to whom it starts; a
// worker must not be spared before everybody else.
void BeAsKillableAsOthers() {
  const Fd fd(::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC));
  char first = 0;
  if (fd.valid() && ::pread(fd.get(), &first, 1, 0) == 1 && first == '-') {
    [[maybe_unused]] const ssize_t n = ::write(fd.get(), "0", 1);
  }
}

// CPUs beyond those that cpu_set_t has room for are left out; no machine with GPUs has them.
cpu_set_t SetOf(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &set);
  }
  return set;
}

// Faster where it succeeds, and no reason not to run where it does not: the kernel refuses CPUs
// that the cgroup does not allow, and container engines may forbid the call for memory.
void BindToPlace(const ProcessSpec& spec) {
  if (!spec.cpus.empty()) {
    const cpu_set_t set = SetOf(spec.cpus);
    ::sched_setaffinity(0, sizeof(set), &set);
  }
  constexpr int kMostNodes = 64;
  if (spec.numa >= 0 && spec.numa < kMostNodes) {
    const unsigned long nodes = 1ul << spec.numa;
    ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, &nodes, kMostNodes + 1);
  }
}

// As fork, with the child in the group from its first instruction on: moving it later would make
// the kernel wait for all processors, some 10 ms each.
pid_t ForkInto(int cgroup) {
  if (cgroup < 0) return ::fork();
  clone_args args{};
  args.flags = CLONE_INTO_CGROUP;
  args.exit_signal = SIGCHLD;
  args.cgroup = static_cast<uint64_t>(cgroup);
  const long pid = ::syscall(SYS_clone3, &args, sizeof(args));
  // Container engines may forbid the call; the walk through /proc then finds the child's children.
  if (pid < 0 && (errno == ENOSYS || errno == EPERM)) return ::fork();
  return static_cast<pid_t>(pid);
}

// The one descriptor above stderr that a child keeps, until exec.
constexpr int kResultFd = 3;

// Everything the child does. If something in here hangs (a dead file server), it hangs nobody else:
// none of the supervisor's descriptors stays open.
Failure BecomeProgram(const ProcessSpec& spec, const std::vector<std::string>& candidates,
                      char* const* argv, char* const* environment, int out, int err, int* result) {
  for (const int entry : spec.cgroup_entries) {
    if (::write(entry, "0", 1) < 0) return {errno, Stage::kEnterCgroup, 0};
  }
  ::setsid();
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  // Sources are above 2 because the shim keeps its own 0, 1 and 2 open for its whole life.
  if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0 ||
      (*result != kResultFd && ::dup3(*result, kResultFd, O_CLOEXEC) < 0)) {
    return {errno, Stage::kPrepare, 0};
  }
  *result = kResultFd;
  if (::close_range(kResultFd + 1, ~0u, 0) < 0) return {errno, Stage::kPrepare, 0};
  ResetSignals();
  if (original_descriptor_limit.has_value()) {
    ::setrlimit(RLIMIT_NOFILE, &*original_descriptor_limit);
  }
  LockAllMemoryAllowed();
  BeAsKillableAsOthers();
  BindToPlace(spec);
  if (!spec.cwd.empty() && ::chdir(spec.cwd.c_str()) < 0) return {errno, Stage::kChangeFolder, 0};
  Failure failure{ENOENT, Stage::kExecute, 0};
  for (size_t i = 0; i < candidates.size(); ++i) {
    ::execve(candidates[i].c_str(), argv, environment);
    // A program that is there but may not be executed says more than one that is not there.
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    if (!absent || candidates.size() == 1) failure = {errno, Stage::kExecute, int32_t(i)};
    if (!absent && errno != EACCES) break;
  }
  return failure;
}

[[noreturn, gnu::noinline]] void RunChild(const ProcessSpec& spec,
                                          const std::vector<std::string>& candidates,
                                          char* const* argv, char* const* environment, int out,
                                          int err, int result) {
  const Failure failure = BecomeProgram(spec, candidates, argv, environment, out, err, &result);
  [[maybe_unused]] const ssize_t n = ::write(result, &failure, sizeof(failure));
  ::_exit(127);
}

}  // namespace

std::vector<std::string> MergeEnvironment(const std::vector<std::string>& common,
                                          const std::vector<std::string>& own) {
  std::vector<std::string> merged;
  std::map<std::string, size_t> places;
  for (const std::vector<std::string>* list : {&common, &own}) {
    for (const std::string& entry : *list) {
      const auto [place, fresh] = places.emplace(entry.substr(0, entry.find('=')), merged.size());
      if (fresh) {
        merged.push_back(entry);
      } else {
        merged[place->second] = entry;
      }
    }
  }
  return merged;
}

absl::string_view EnvironmentValue(const std::vector<std::string>& environment,
                                   absl::string_view name) {
  for (const std::string& entry : environment) {
    absl::string_view view = entry;
    if (view.size() > name.size() && view[name.size()] == '=' &&
        view.substr(0, name.size()) == name) {
      return view.substr(name.size() + 1);
    }
  }
  return {};
}

bool IsBoundTo(pid_t pid, const std::vector<int>& cpus) {
  cpu_set_t now;
  CPU_ZERO(&now);
  if (::sched_getaffinity(pid, sizeof(now), &now) < 0) return true;  // it has ended
  const cpu_set_t wanted = SetOf(cpus);
  cpu_set_t both;
  CPU_AND(&both, &now, &wanted);
  return CPU_EQUAL(&both, &now) != 0;
}

absl::StatusOr<WorkerProcess> Fork(const ProcessSpec& spec) {
  using Ends = std::pair<Fd, Fd>;
  ASSIGN_OR_RETURN(Ends result, MakePipe());
  ASSIGN_OR_RETURN(Ends out, MakePipe());
  ASSIGN_OR_RETURN(Ends err, MakePipe());
  const std::vector<std::string> candidates = Candidates(spec);
  const std::vector<char*> argv = Pointers(spec.argv);
  const std::vector<char*> environment = Pointers(spec.environment);
  // Not vfork: the parent would sleep until exec, which hangs where a file server is dead.
  const pid_t pid = ForkInto(spec.cgroup);
  if (pid == 0) {
    RunChild(spec, candidates, argv.data(), environment.data(), out.second.get(), err.second.get(),
             result.second.get());
  }
  if (pid < 0) return ErrnoStatus(errno, "fork");
  return WorkerProcess{pid, std::move(result.first), std::move(out.first), std::move(err.first)};
}

ExecResult ReadExecResult(int fd, const ProcessSpec& spec) {
  Failure failure;
  const ssize_t n = ::read(fd, &failure, sizeof(failure));
  if (n < 0) return {};
  if (n != sizeof(failure)) return {ExecResult::Kind::kExecuted, 0, {}};
  std::string what = "prepare the process";
  std::string hint;
  if (failure.stage == Stage::kEnterCgroup) what = "enter the cgroups that limit it";
  if (failure.stage == Stage::kChangeFolder) what = absl::StrCat("change folder to ", spec.cwd);
  if (failure.stage == Stage::kExecute) {
    const std::vector<std::string> candidates = Candidates(spec);
    const bool searched = candidates.size() > 1 && failure.error == ENOENT;
    const std::string& program =
        searched ? spec.argv[0] : candidates[static_cast<size_t>(failure.candidate)];
    what = absl::StrCat("execute ", program);
    if (searched) hint = " in any folder of PATH";
    if (failure.error == ENOENT && !searched && ::access(program.c_str(), F_OK) == 0) {
      hint = " (the file exists; the interpreter that its first line names does not)";
    }
  }
  return {ExecResult::Kind::kFailed, failure.error,
          absl::StrCat(what, ": ", std::strerror(failure.error), hint)};
}

void RaiseDescriptorLimit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  original_descriptor_limit = limit;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace trainctl

#include "launcher/preflight_run.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/program.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr size_t kMostOutput = size_t{4} << 20;
constexpr int kLookMillis = 50;
// After SIGKILL; a process that a dead device holds in the kernel stays.
constexpr Duration kDeathPatience = seconds(2);

struct Running {
  Child child;
  std::string file;
  off_t size = 0;
  Instant last_sign;
  bool over = false;
  bool hung = false;
  siginfo_t end{};
};

bool Reap(Running& running) {
  siginfo_t end{};
  if (::waitid(P_PID, static_cast<id_t>(running.child.pid), &end, WEXITED | WNOHANG) != 0 ||
      end.si_pid == 0) {
    return false;
  }
  running.over = true;
  running.end = end;
  return true;
}

// Sleeps until one ends, or a little while.
void Look(std::vector<Running>& all) {
  std::vector<pollfd> polled;
  for (const Running& running : all) {
    if (!running.over) polled.push_back({running.child.pidfd.get(), POLLIN, 0});
  }
  ::poll(polled.data(), polled.size(), kLookMillis);
  for (Running& running : all) {
    struct stat found {};
    if (::stat(running.file.c_str(), &found) == 0 && found.st_size != running.size) {
      running.size = found.st_size;
      running.last_sign = Now();
    }
    if (!running.over) Reap(running);
  }
}

bool AllOver(const std::vector<Running>& all) {
  for (const Running& running : all) {
    if (!running.over) return false;
  }
  return true;
}

void KillRest(std::vector<Running>& all) {
  for (Running& running : all) {
    if (running.over) continue;
    running.hung = true;
    ::kill(running.child.pid, SIGKILL);
  }
  const Instant end = Now() + kDeathPatience;
  while (!AllOver(all) && Now() < end) Look(all);
}

ChildOutput OutputOf(const Running& running, Duration patience) {
  ChildOutput output;
  output.text = ReadFile(running.file, kMostOutput).value_or("");
  if (running.hung) {
    output.end = ChildOutput::End::kHung;
    output.how = absl::StrCat("no sign of life for ", ToSeconds(patience), " s",
                              running.over ? "" : ", and SIGKILL does not end it");
  } else if (running.end.si_code != CLD_EXITED) {
    output.end = ChildOutput::End::kFailed;
    output.how = absl::StrCat("ended by signal ", running.end.si_status);
  } else if (running.end.si_status != 0) {
    output.end = ChildOutput::End::kFailed;
    output.how = absl::StrCat("exit status ", running.end.si_status);
  }
  return output;
}

}  // namespace

absl::StatusOr<PreflightChildren> PreflightChildren::Make(std::string program, Duration patience) {
  const char* tmp = ::getenv("TMPDIR");
  std::string folder =
      absl::StrCat(tmp == nullptr || *tmp == '\0' ? "/tmp" : tmp, "/trainctl-preflight-XXXXXX");
  if (::mkdtemp(folder.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("make the folder ", folder));
  }
  return PreflightChildren(std::move(program), patience, std::move(folder));
}

PreflightChildren::PreflightChildren(std::string program, Duration patience, std::string folder)
    : program_(std::move(program)), patience_(patience), folder_(std::move(folder)) {}

PreflightChildren::PreflightChildren(PreflightChildren&& other) noexcept
    : program_(std::move(other.program_)),
      patience_(other.patience_),
      folder_(std::exchange(other.folder_, "")),
      runs_(other.runs_) {}

PreflightChildren::~PreflightChildren() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

absl::StatusOr<std::string> PreflightChildren::MakeFolder() {
  const std::string folder = JoinPath(folder_, absl::StrCat("exchange-", ++runs_));
  RETURN_IF_ERROR(MakeFolders(folder, 0700));
  return folder;
}

absl::StatusOr<std::vector<ChildOutput>> PreflightChildren::Run(
    const std::vector<std::vector<std::string>>& words) {
  std::vector<Running> all(words.size());
  ++runs_;
  absl::Status started;
  for (size_t i = 0; i < words.size() && started.ok(); ++i) {
    std::vector<std::string> argv = {program_};
    argv.insert(argv.end(), words[i].begin(), words[i].end());
    all[i].file = JoinPath(folder_, absl::StrCat("output-", runs_, ".", i));
    StartOptions options;
    options.log_file = all[i].file;
    options.new_session = false;  // Ctrl-C ends them too
    absl::StatusOr<Child> child = StartProgram(argv, options);
    started = child.status();
    all[i].over = !child.ok();
    all[i].last_sign = Now();
    if (child.ok()) all[i].child = *std::move(child);
  }
  if (!started.ok()) {
    for (Running& running : all) running.over = running.over || running.child.pid == 0;
    KillRest(all);
    return started;
  }
  bool hung = false;
  while (!hung && !AllOver(all)) {
    Look(all);
    for (const Running& running : all) {
      hung = hung || (!running.over && Now() >= running.last_sign + patience_);
    }
  }
  if (hung) KillRest(all);
  std::vector<ChildOutput> outputs;
  for (const Running& running : all) outputs.push_back(OutputOf(running, patience_));
  return outputs;
}

absl::StatusOr<ChildOutput> PreflightChildren::Run(const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(std::vector<ChildOutput> outputs,
                   Run(std::vector<std::vector<std::string>>{words}));
  return outputs[0];
}

}  // namespace trainctl

#include "tests/process/control/control_fixture.h"

#include <dirent.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"

namespace trainctl::testing {

bool WaitUntil(const std::function<bool()>& done, const std::string& what) {
  const Instant deadline = Now() + kDeadline;
  while (!done()) {
    if (Now() >= deadline) {
      ADD_FAILURE() << "waited " << ToSeconds(kDeadline) << " s for " << what;
      return false;
    }
    ::poll(nullptr, 0, 2);
  }
  return true;
}

bool Alive(pid_t pid) {
  const absl::StatusOr<std::string> stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  if (!stat.ok()) return false;
  const size_t end = stat->rfind(')');
  return end != std::string::npos && stat->substr(end + 2, 1) != "Z";
}

std::vector<pid_t> ProcessesNaming(const std::string& text) {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  while (const dirent* entry = ::readdir(proc.get())) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || pid == ::getpid()) continue;
    const auto line = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"));
    if (line.ok() && absl::StrContains(*line, text) && Alive(pid)) found.push_back(pid);
  }
  return found;
}

FrontEnd::FrontEnd(const std::string& socket, WatchOptions options) {
  loop_.Post([this, socket, options] {
    watch_ = std::make_unique<JobWatch>(
        &loop_, socket, options,
        JobWatch::Callbacks{[this](JobUpdate update) { Take(std::move(update)); },
                            [this](const absl::Status& status) {
                              MutexLock lock(&mutex_);
                              end_status_ = status;
                            }});
  });
  thread_ = std::thread([this] { loop_.Run(); });
}

FrontEnd::~FrontEnd() {
  loop_.Post([this] {
    watch_.reset();
    // The stream's last post comes after its cancellation.
    loop_.After(milliseconds(50), [this] { loop_.Quit(0); });
  });
  thread_.join();
}

void FrontEnd::Take(JobUpdate update) {
  MutexLock held(&hold_);
  MutexLock lock(&mutex_);
  if (const auto* batch = std::get_if<OutputBatch>(&update)) {
    for (const OutputBytes& output : *batch) {
      std::string& text = output_[{output.epoch.value, {output.rank, output.stream}}];
      EXPECT_EQ(output.offset, text.size()) << "a byte was lost or doubled";
      text += output.data;
    }
  } else if (const auto* announced = std::get_if<Announce>(&update)) {
    announcements_.push_back(announced->text);
  } else if (const auto* state = std::get_if<JobDescription>(&update)) {
    state_ = *state;
  } else if (const auto* ended = std::get_if<JobEnded>(&update)) {
    ended_ = *ended;
  }
}

bool FrontEnd::Await(const std::function<bool(FrontEnd&)>& done, const std::string& what) {
  return WaitUntil([&] { return done(*this); }, what);
}

std::optional<JobEnded> FrontEnd::AwaitEnd() {
  Await(
      [](FrontEnd& front) {
        MutexLock lock(&front.mutex_);
        return front.end_status_.has_value();
      },
      "the end of the watch");
  MutexLock lock(&mutex_);
  return ended_;
}

absl::Status FrontEnd::end_status() {
  MutexLock lock(&mutex_);
  return end_status_.value_or(absl::UnknownError("not ended"));
}

bool FrontEnd::AwaitRunning() {
  return Await([](FrontEnd& f) { return f.State().view.phase == JobPhase::kRunning; },
               "all workers to run");
}

std::string FrontEnd::Output(int rank, int stream) {
  MutexLock lock(&mutex_);
  std::string all;
  for (const auto& [key, text] : output_) {
    if (key.second == std::make_pair(rank, stream)) all += text;
  }
  return all;
}

std::vector<std::string> FrontEnd::Announcements() {
  MutexLock lock(&mutex_);
  return announcements_;
}

JobDescription FrontEnd::State() {
  MutexLock lock(&mutex_);
  return state_;
}

void Control::SetUp() {
  std::string name = "/tmp/trainctl-control-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  folder_ = name;
  daemon_socket_ = File("traind.sock");
}

void Control::TearDown() {
  if (daemon_.pid != 0) {
    ::kill(daemon_.pid, SIGKILL);
    ::waitpid(daemon_.pid, nullptr, 0);
  }
  WaitUntil([&] { return ProcessesNaming(folder_).empty(); }, "the test's processes to end");
  for (const pid_t pid : ProcessesNaming(folder_)) ::kill(pid, SIGKILL);
  if (!job_.job_id.empty()) {
    EXPECT_FALSE(std::filesystem::exists(ShimSocket(job_.job_id))) << "a socket was left";
    std::filesystem::remove(ShimSocket(job_.job_id));
    std::filesystem::remove(JobSocket(job_.job_id));
  }
  if (HasFailure()) {
    for (const char* log : {"traind.log", "coordinator.log", "shim.log"}) {
      const std::string path = log[0] == 't' ? File(log) : absl::StrCat(job_.job_folder, "/", log);
      const auto text = ReadFile(path);
      if (text.ok()) GTEST_LOG_(INFO) << log << ":\n" << *text;
    }
  } else {
    std::filesystem::remove_all(folder_);
  }
}

absl::Status Control::StartDaemon(const std::vector<std::string>& more) {
  absl::StatusOr<ReadyPipe> ready = MakeReadyPipe();
  if (!ready.ok()) return ready.status();
  std::vector<std::string> argv = {TRAINCTL_BIN_DIR "/traind",
                                   "--socket",
                                   daemon_socket_,
                                   "--state-dir",
                                   File("state"),
                                   "--ready-fd",
                                   absl::StrCat(ready->write.get())};
  argv.insert(argv.end(), more.begin(), more.end());
  StartOptions options;
  options.inherit = {ready->write.get()};
  options.log_file = File("traind.log");
  absl::StatusOr<Child> child = StartProgram(argv, options);
  if (!child.ok()) return child.status();
  daemon_ = *std::move(child);
  ready->write.Close();
  return AwaitReady(ready->read.get(), kDeadline);
}

void Control::KillDaemon() {
  ASSERT_EQ(::kill(daemon_.pid, SIGKILL), 0);
  ASSERT_EQ(::waitpid(daemon_.pid, nullptr, 0), daemon_.pid);
  daemon_ = Child();
}

bool Control::AwaitDaemonEnd() {
  int status = -1;
  const bool ended =
      WaitUntil([&] { return ::waitpid(daemon_.pid, &status, WNOHANG) == daemon_.pid; },
                "the private daemon to end with its job");
  if (ended) daemon_ = Child();
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

JobSpec Control::Spec(const std::string& script, int workers) const {
  JobSpec spec;
  spec.name = "test";
  spec.command = {"/bin/sh", "-c", script, folder_};
  spec.cwd = folder_;
  spec.env = {"PATH=/usr/bin:/bin"};
  spec.workers_per_node = workers;
  spec.grace = seconds(2);
  return spec;
}

StartedJob Control::Submit(const JobSpec& spec) {
  absl::StatusOr<StartedJob> job = NodeClient(daemon_socket_).Submit(spec);
  EXPECT_TRUE(job.ok()) << job.status();
  if (job.ok()) job_ = *job;
  return job_;
}

pid_t Control::ProcessOf(const std::string& program) const {
  for (const pid_t pid : ProcessesNaming(job_.job_folder)) {
    const auto line = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"));
    if (line.ok() && absl::StrContains(line->substr(0, line->find('\0')), program)) return pid;
  }
  return 0;
}

}  // namespace trainctl::testing

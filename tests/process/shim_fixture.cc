#include "tests/process/shim_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"

namespace trainctl::testing {
namespace {

// Empty where it cannot be read: a process may end at any time.
std::string ReadAny(const std::string& path) { return ReadFile(path).value_or(""); }

}  // namespace

bool WaitUntil(const std::function<bool()>& done, const std::string& what) {
  const Instant until = Now() + kDeadline;
  while (!done()) {
    if (Now() >= until) {
      ADD_FAILURE() << "waited in vain for: " << what;
      return false;
    }
    ::poll(nullptr, 0, 2);
  }
  return true;
}

void AwaitSleep(pid_t shell) {
  const auto sleeps = [](const std::string& pid) {
    return ReadAny("/proc/" + pid + "/stat").rfind(pid + " (sleep) S", 0) == 0;
  };
  const std::string pid = std::to_string(shell);
  const auto child = [&pid] {
    const std::string pids = ReadAny("/proc/" + pid + "/task/" + pid + "/children");
    return pids.substr(0, pids.find(' '));
  };
  WaitUntil([&] { return sleeps(pid) || sleeps(child()); }, "the sleep of process " + pid);
}

Peer::Peer(const std::string& socket, const frame::Hello& hello) {
  WaitUntil(
      [&] {
        auto connected = ConnectUnix(socket);
        if (connected.ok()) socket_ = *std::move(connected);
        return socket_.valid();
      },
      "the shim's socket");
  Send(hello);
}

void Peer::Send(const frame::Frame& frame) {
  SendBytes(frame::Encode(frame));
  if (const auto* start = std::get_if<frame::StartEpoch>(&frame); start && confirms) {
    Confirm(start->term);
  }
}

void Peer::Confirm(int64_t term) {
  while (std::optional<frame::Frame> frame = Receive()) {
    if (const auto* request = std::get_if<frame::LeaseRequest>(&*frame)) {
      const int64_t length = Duration(std::chrono::hours(1)).count();
      return SendBytes(frame::Encode(frame::LeaseAnswer{request->request_id, term, true, length}));
    }
    early_.push_back(*frame);
    // Refused, or told again.
    const bool refused = std::holds_alternative<frame::ShimState>(*frame) && ++states_ > 1;
    if (refused || std::holds_alternative<frame::EpochStarted>(*frame)) return;
  }
}

std::optional<frame::Frame> Peer::Next() {
  if (early_.empty()) {
    std::optional<frame::Frame> frame = Receive();
    if (!frame.has_value()) return frame;
    if (std::holds_alternative<frame::ShimState>(*frame)) ++states_;
    early_.push_back(*std::move(frame));
  }
  seen_.push_back(std::move(early_.front()));
  early_.pop_front();
  return seen_.back();
}

void Peer::AskForOutput(int64_t epoch, int workers, uint64_t offset) {
  for (int rank = 0; rank < workers; ++rank) {
    for (const uint8_t stream : {uint8_t{1}, uint8_t{2}}) {
      Send(frame::OutputFrom{epoch, rank, stream, offset, std::numeric_limits<uint64_t>::max()});
    }
  }
}

void Peer::SendBytes(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // the shim closed: the reader sees it
    sent += static_cast<size_t>(n);
  }
}

std::optional<frame::Frame> Peer::Receive() {
  const Instant until = Now() + deadline;
  for (;;) {
    auto frame = decoder_.Next();
    if (!frame.ok()) {
      ADD_FAILURE() << frame.status();
      return std::nullopt;
    }
    if (frame->has_value()) {
      if (const auto* output = std::get_if<frame::Output>(&**frame)) {
        output_bytes += output->bytes.size();
        if (!keep_output) continue;
        auto& [first, bytes] = output_[{output->rank, output->stream}];
        if (bytes.empty()) first = output->offset;
        EXPECT_EQ(output->offset, first + bytes.size()) << "output lost or doubled";
        bytes += output->bytes;
      }
      return **frame;
    }
    pollfd wait{socket_.get(), POLLIN, 0};
    if (Now() >= until || ::poll(&wait, 1, static_cast<int>(ToMillis(until - Now()))) == 0) {
      ADD_FAILURE() << "no frame came before the deadline";
      return std::nullopt;
    }
    char buffer[65536];
    const ssize_t n = ::read(socket_.get(), buffer, sizeof(buffer));
    if (n <= 0) return std::nullopt;
    decoder_.Feed(absl::string_view(buffer, static_cast<size_t>(n)));
  }
}

bool Peer::AwaitEnd() {
  while (Next().has_value()) {
  }
  char byte;
  return ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN;
}

std::string Peer::OutputOf(int32_t rank, uint8_t stream) const {
  const auto found = output_.find({rank, stream});
  return found == output_.end() ? "" : found->second.second;
}

void Shim::SetUp() {
  char pattern[] = "/tmp/shim-test-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern), nullptr);
  folder_ = pattern;
  socket_ = folder_ + "/socket";
  mark_ = "SHIM_TEST_MARK=" + folder_;
}

void Shim::TearDown() {
  if (keeper_ > 0) {
    ::kill(keeper_, SIGTERM);
    WaitForShimExit();
  }
  ExpectNothingLeft();
  for (const pid_t pid : MarkedProcesses()) ::kill(pid, SIGKILL);
  if (HasFailure()) {
    std::fprintf(stderr, "shim.log:\n%s", ReadAny(folder_ + "/shim.log").c_str());
  }
  std::filesystem::remove_all(folder_);
}

void Shim::StartShim(int slots, const std::string& lease, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {TRAINCTL_BIN_DIR "/train-shim",
                                        "--job",
                                        "test",
                                        "--socket",
                                        socket_,
                                        "--slots",
                                        absl::StrCat(slots),
                                        "--folder",
                                        folder_,
                                        "--lease",
                                        lease};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  keeper_ = ::fork();
  ASSERT_GE(keeper_, 0);
  if (keeper_ == 0) {
    ::setenv("TRAINCTL_LOG", "info", 1);
    ::execv(argv[0], argv.data());
    ::_exit(126);
  }
}

Peer Shim::ConnectDaemon(int64_t incarnation) {
  return Peer(socket_, frame::Hello{frame::kFrameVersion, incarnation, -1});
}

Peer Shim::ConnectWorker(int32_t rank, int64_t epoch) {
  return Peer(socket_, frame::Hello{frame::kFrameVersion, epoch, rank});
}

pid_t Shim::FindSupervisor() const {
  pid_t found = 0;
  WaitUntil(
      [&] {
        for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
          int pid = 0;
          if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
          const std::string text = ReadAny(entry.path().string() + "/stat");
          const size_t end = text.rfind(')');
          int parent = 0;
          if (end != std::string::npos &&
              std::sscanf(text.c_str() + end + 1, " %*c %d", &parent) == 1 && parent == keeper_) {
            found = pid;
          }
        }
        return found != 0;
      },
      "the supervisor");
  return found;
}

int Shim::WaitForShimExit() {
  int status = 0;
  const bool ended =
      WaitUntil([&] { return ::waitpid(keeper_, &status, WNOHANG) == keeper_; }, "the shim's end");
  keeper_ = 0;
  return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

frame::StartEpoch Shim::Scripts(int64_t epoch, const std::vector<std::string>& scripts) const {
  frame::StartEpoch start;
  start.term = 1;
  start.epoch = epoch;
  start.world_size = static_cast<int32_t>(scripts.size());
  start.cwd = folder_;
  start.log_folder = folder_ + "/logs";
  start.env = {"PATH=/usr/bin:/bin", mark_};
  for (size_t i = 0; i < scripts.size(); ++i) {
    const int rank = static_cast<int>(i);
    start.workers.push_back({rank, rank, {"/bin/sh", "-c", scripts[i]}, {}});
  }
  return start;
}

std::vector<pid_t> Shim::MarkedProcesses() const {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    // A zombie has no environment left.
    if (ReadAny(entry.path().string() + "/environ").find(mark_) != std::string::npos) {
      found.push_back(pid);
    }
  }
  return found;
}

void Shim::ExpectNothingLeft() const {
  WaitUntil([this] { return MarkedProcesses().empty(); }, "the end of every descendant");
}

std::string Shim::LogPath(int64_t epoch, int rank, const std::string& name) const {
  return absl::StrCat(folder_, "/logs/", epoch, "/", rank, "/", name);
}

}  // namespace trainctl::testing

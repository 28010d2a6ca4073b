#include "launcher/commands/local_tasks.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/commands/exit_status.h"
#include "launcher/slot_loan.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr char kEnd = '\0';  // of a loan
constexpr size_t kLongestLoan = 1 << 20;

// One socket for each start of a step on a node.
std::string SocketOf(const NodeIdentity& identity) {
  std::string name = absl::StrCat(identity.scheduler, "-", identity.job_id, "-", identity.requeues,
                                  "-", identity.node_rank, ".tasks");
  for (char& c : name) {
    if (c == '/' || c == ' ') c = '_';
  }
  return JoinPath(SocketFolder(), name);
}

SlotLoan OwnSlot(const NodeIdentity& identity) {
  SlotLoan loan;
  loan.local_id = identity.local_id;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) loan.cpus.push_back(cpu);
    }
  }
  if (const char* gpus = getenv("CUDA_VISIBLE_DEVICES")) loan.gpus = gpus;
  return loan;
}

void Use(const JoinedSlots& slots) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : slots.cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  // Refused where the step itself is confined; then we stay on our own.
  if (!slots.cpus.empty()) sched_setaffinity(0, sizeof set, &set);
  if (slots.gpus.has_value()) setenv("CUDA_VISIBLE_DEVICES", slots.gpus->c_str(), 1);
}

// DEADLINE_EXCEEDED: nothing to read until then.
absl::Status AwaitInput(int fd, Instant until) {
  for (;;) {
    pollfd wait{fd, POLLIN, 0};
    const auto left = static_cast<int>(ToSeconds(until - Now()) * 1000);
    const int n = poll(&wait, 1, std::max(left, 0));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "wait for the other tasks");
    return n > 0 ? absl::OkStatus() : absl::DeadlineExceededError("they did not come in time");
  }
}

absl::StatusOr<SlotLoan> ReadLoan(int fd, Instant until) {
  std::string text;
  for (;;) {
    RETURN_IF_ERROR(AwaitInput(fd, until));
    char piece[4096];
    const ssize_t n = read(fd, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || text.size() > kLongestLoan) {
      return absl::UnavailableError("a task ended before it had lent its slot");
    }
    text.append(piece, static_cast<size_t>(n));
    if (text.back() != kEnd) continue;
    text.pop_back();
    return ParseSlotLoan(text);
  }
}

}  // namespace

absl::Status FirstTask::Begin(const NodeIdentity& identity, Duration patience) {
  if (identity.local_tasks < 2) {
    return absl::OkStatus();
  }
  const Instant until = Now() + patience;
  RETURN_IF_ERROR(MakePrivateFolder(SocketFolder()));
  const std::string path = SocketOf(identity);
  ASSIGN_OR_RETURN(const Fd listener, ListenUnix(path, 0600));
  const auto remove = absl::MakeCleanup([&path] { unlink(path.c_str()); });
  std::vector<SlotLoan> loans = {OwnSlot(identity)};
  others_.resize(static_cast<size_t>(identity.local_tasks));
  while (loans.size() < others_.size()) {
    if (const absl::Status came = AwaitInput(listener.get(), until); !came.ok()) {
      std::vector<size_t> missing;
      for (size_t id = 1; id < others_.size(); ++id) {
        if (!others_[id].valid()) missing.push_back(id);
      }
      return absl::Status(
          came.code(),
          absl::StrCat("wait for the other tasks on this node (", identity.scheduler, " started ",
                       identity.local_tasks, "), of which ", absl::StrJoin(missing, ", "),
                       " lent no slot: ", came.message()));
    }
    Fd other(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!other.valid() && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) continue;
    if (!other.valid()) return ErrnoStatus(errno, absl::StrCat("accept at ", path));
    ASSIGN_OR_RETURN(SlotLoan loan, ReadLoan(other.get(), until));
    const auto id = static_cast<size_t>(loan.local_id);
    if (id == 0 || id >= others_.size() || others_[id].valid()) {
      return absl::InvalidArgumentError(absl::StrCat("the loan of task ", id,
                                                     " on this node: it has tasks 0 to ",
                                                     others_.size() - 1, ", each once"));
    }
    others_[id] = std::move(other);
    loans.push_back(std::move(loan));
  }
  ASSIGN_OR_RETURN(const JoinedSlots slots, JoinSlots(std::move(loans), identity.gpus));
  Use(slots);
  return absl::OkStatus();
}

void FirstTask::End(int status, const std::vector<int>& worker_statuses) {
  for (size_t id = 1; id < others_.size(); ++id) {
    if (!others_[id].valid()) continue;
    const int own = id < worker_statuses.size() ? worker_statuses[id] : status;
    WriteAll(others_[id].get(), absl::StrCat(own), "another task").IgnoreError();
    others_[id].Close();
  }
}

int LendSlot(const NodeIdentity& identity, Duration patience) {
  const std::string path = SocketOf(identity);
  const Instant give_up = Now() + patience;
  absl::StatusOr<Fd> first = ConnectUnix(path);
  while (!first.ok()) {
    if (Now() >= give_up) {
      return Fail(absl::UnavailableError(
          absl::StrCat("task 0 on this node did not begin within ", ToSeconds(patience), " s")));
    }
    absl::SleepFor(absl::Milliseconds(20));
    first = ConnectUnix(path);
  }
  std::string loan = FormatSlotLoan(OwnSlot(identity));
  loan.push_back(kEnd);
  if (const absl::Status lent = WriteAll(first->get(), loan, "task 0 on this node"); !lent.ok()) {
    return Fail(lent);
  }
  // Meant for all tasks of the step, and task 0 is the one to act on it.
  std::signal(SIGTERM, SIG_IGN);
  char text[16] = {};
  ssize_t n = 0;
  while ((n = read(first->get(), text, sizeof text - 1)) < 0 && errno == EINTR) {
  }
  int status = kExitFailed;
  if (n <= 0 || !absl::SimpleAtoi(text, &status)) {
    return Fail(absl::UnavailableError("task 0 on this node ended without a word (killed?)"));
  }
  return status;
}

}  // namespace trainctl

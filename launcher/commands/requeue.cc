#include "launcher/commands/requeue.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/hosts.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr size_t kLongestAnswer = 1 << 20;

std::string JobOf(const NodeIdentity& identity) {
  return identity.job_id.substr(0, identity.job_id.find('.'));  // not the step
}

// What a program prints. UNAVAILABLE: it cannot be started, or does not succeed.
absl::StatusOr<std::string> Ask(const std::vector<std::string>& argv) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) < 0) {
    return ErrnoStatus(errno, "make a pipe");
  }
  const Fd read_end(fds[0]);
  Fd write_end(fds[1]);
  std::vector<char*> words;
  for (const std::string& word : argv) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 1);
  posix_spawnattr_t attributes;  // signals that our loop holds are not held there
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0], &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  write_end.Close();
  if (error != 0) {
    return absl::UnavailableError(ErrnoStatus(error, absl::StrCat("start ", argv[0])).message());
  }
  std::string answer;
  char piece[4096];
  for (;;) {
    const ssize_t n = read(read_end.get(), piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (answer.size() < kLongestAnswer) answer.append(piece, static_cast<size_t>(n));
  }
  int how = 0;
  while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) {
    return absl::UnavailableError(absl::StrCat(absl::StrJoin(argv, " "), " did not succeed"));
  }
  return answer;
}

}  // namespace

absl::StatusOr<bool> HasLostFirstNode(const NodeIdentity& identity) {
  ASSIGN_OR_RETURN(const std::string answer,
                   Ask({"squeue", "--noheader", "--format=%N", "--jobs", JobOf(identity)}));
  const absl::StatusOr<std::vector<ListedNode>> nodes =
      ParseHostList(absl::StripAsciiWhitespace(answer));
  if (!nodes.ok()) {
    return absl::UnavailableError(
        absl::StrCat("read squeue's list of the job's nodes: ", nodes.status().message()));
  }
  return std::none_of(nodes->begin(), nodes->end(),
                      [&identity](const ListedNode& node) { return node.name == identity.head; });
}

absl::Status RequeueJob(const NodeIdentity& identity) {
  const std::string job = JobOf(identity);
  const absl::Status asked = Ask({"scontrol", "requeue", job}).status();
  if (asked.ok()) {
    return asked;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(asked.message(), "; end the job with scancel ", job, " and submit it again"));
}

}  // namespace trainctl

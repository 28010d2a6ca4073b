#include "launcher/commands/daemon_choice.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr Duration kReadyTimeout = seconds(20);
constexpr int kEndMillis = 2000;
constexpr char kSystemSocket[] = "/run/trainctl/traind.sock";

}  // namespace

absl::StatusOr<std::optional<std::string>> FindDaemon(const std::optional<std::string>& address) {
  if (address.has_value()) {
    absl::string_view path = *address;
    absl::ConsumePrefix(&path, "unix:");
    if (!absl::StrContains(path, "/")) {
      return absl::InvalidArgumentError(absl::StrCat("--daemon: found \"", *address,
                                                     "\", expected the path of a daemon's socket"));
    }
    RETURN_IF_ERROR(ConnectUnix(std::string(path)).status());
    return std::optional<std::string>(std::string(path));
  }
  for (const std::string& socket : {DaemonSocket(), std::string(kSystemSocket)}) {
    if (ConnectUnix(socket).ok()) {
      return std::optional<std::string>(socket);
    }
  }
  return std::optional<std::string>();
}

absl::StatusOr<PrivateDaemon> StartPrivateDaemon(const std::string& log_file,
                                                 const std::string& adopt) {
  PrivateDaemon daemon;
  ASSIGN_OR_RETURN(const std::string program, FindProgram("traind"));
  RETURN_IF_ERROR(MakePrivateFolder(SocketFolder()));
  daemon.log_file = log_file;
  daemon.socket = JoinPath(SocketFolder(), absl::StrCat("private-", getpid(), ".sock"));
  ASSIGN_OR_RETURN(ReadyPipe pipe, MakeReadyPipe());
  std::vector<std::string> argv = {program,       "--private",  "--socket",
                                   daemon.socket, "--ready-fd", absl::StrCat(pipe.write.get())};
  if (!adopt.empty()) {
    argv.insert(argv.end(), {"--adopt", adopt});
  }
  StartOptions options;
  options.inherit = {pipe.write.get()};
  options.log_file = log_file;
  ASSIGN_OR_RETURN(daemon.child, StartProgram(argv, options));
  daemon.ready = std::move(pipe.read);
  return daemon;
}

absl::StatusOr<OtherDaemon> DaemonOf(const std::string& job_folder) {
  OtherDaemon daemon;
  std::error_code error;
  daemon.socket = std::filesystem::read_symlink(JoinPath(job_folder, "daemon"), error).string();
  if (error) return absl::NotFoundError(absl::StrCat(job_folder, " names no daemon"));
  absl::StatusOr<Fd> connection = ConnectUnix(daemon.socket);
  if (!connection.ok()) return absl::NotFoundError(connection.status().message());
  ucred peer{};
  socklen_t size = sizeof(peer);
  getsockopt(connection->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  if (peer.uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("the daemon at ", daemon.socket, " is one of user ", peer.uid));
  }
  daemon.process = Fd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!daemon.process.valid()) return ErrnoStatus(errno, "watch the daemon");
  return daemon;
}

absl::Status AwaitDaemon(const PrivateDaemon& daemon) {
  const absl::Status ready = AwaitReady(daemon.ready.get(), kReadyTimeout);
  if (ready.ok()) {
    return ready;
  }
  const bool told = !absl::IsUnavailable(ready) && !absl::IsDeadlineExceeded(ready);
  if (told) {
    return absl::Status(ready.code(), absl::StrCat("start a private daemon: ", ready.message()));
  }
  absl::StatusOr<std::string> log = ReadFile(daemon.log_file, size_t{1} << 20);
  return absl::UnavailableError(
      absl::StrCat("start a private daemon: ", ready.message(),
                   log.ok() && !log->empty() ? absl::StrCat("\n", *log) : ""));
}

void EndDaemon(PrivateDaemon* daemon) {
  kill(daemon->child.pid, SIGTERM);
  pollfd ended{daemon->child.pidfd.get(), POLLIN, 0};
  if (poll(&ended, 1, kEndMillis) == 0) kill(daemon->child.pid, SIGKILL);
  while (waitpid(daemon->child.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  unlink(daemon->socket.c_str());
}

}  // namespace trainctl

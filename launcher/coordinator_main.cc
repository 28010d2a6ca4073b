#include "launcher/coordinator_main.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/driver.h"
#include "launcher/inviter.h"
#include "launcher/job_service.h"
#include "runtime/base/file.h"
#include "runtime/base/flags.h"
#include "runtime/base/log.h"
#include "runtime/base/loop.h"
#include "runtime/base/network.h"
#include "runtime/base/places.h"
#include "runtime/base/program.h"
#include "runtime/base/status.h"
#include "runtime/rpc/tcp_listener.h"
#include "runtime/rpc/unix_listener.h"
#include "runtime/security/tls_files.h"

namespace trainctl {
namespace {

// The port is chosen once in a job's life: its nodes come back to it.
std::string PortPath(const std::string& job_folder) { return JoinPath(job_folder, "port"); }

absl::StatusOr<std::unique_ptr<TcpListener>> ListenForNodes(Loop* loop, const JobSpec& spec,
                                                            grpc::Service* service) {
  ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(spec.listen, 0));
  if (const auto port = ReadFile(PortPath(spec.job_folder), 16); port.ok()) {
    if (!absl::SimpleAtoi(*port, &endpoint.port)) {
      return absl::DataLossError(absl::StrCat(PortPath(spec.job_folder), " holds no port"));
    }
  }
  ASSIGN_OR_RETURN(
      const TlsIdentity identity,
      LoadIdentity({spec.key_file, spec.tls_certificate, spec.tls_private_key, spec.tls_authority},
                   PeerName::Node(spec.head), kNodeValidity));
  ASSIGN_OR_RETURN(std::unique_ptr<TcpListener> listener,
                   TcpListener::Listen(loop, endpoint, identity, {service}));
  RETURN_IF_ERROR(WriteFileAtomically(PortPath(spec.job_folder), absl::StrCat(listener->port())));
  return listener;
}

// Every node is a connection, and this process starts no other that would inherit the limit.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

absl::StatusOr<int> Run(const std::string& job_folder, const std::string& socket, int ready_fd) {
  RETURN_IF_ERROR(MakePrivateFolder(FolderOf(socket)));
  Loop loop;
  ASSIGN_OR_RETURN(std::unique_ptr<Driver> driver, Driver::Open(&loop, job_folder));
  JobServiceImpl service(&loop, driver.get());
  ASSIGN_OR_RETURN(std::unique_ptr<UnixListener> listener,
                   UnixListener::Listen(&loop, socket, {&service}));
  std::unique_ptr<TcpListener> node_listener;
  std::unique_ptr<Inviter> inviter;
  const JobSpec& spec = driver->spec();
  if (!spec.listen.empty()) {
    RaiseDescriptorLimit();
    ASSIGN_OR_RETURN(node_listener, ListenForNodes(&loop, spec, &service));
    if (spec.daemon_port != 0) {
      ASSIGN_OR_RETURN(inviter, Inviter::Begin(&loop, spec, node_listener->port(),
                                               [&driver] { return driver->NodesAway(); }));
    }
  }
  TellReady(ready_fd, absl::OkStatus());
  const auto accept_nobody = [&] {
    listener->Close();
    if (node_listener != nullptr) node_listener->Close();
    inviter.reset();
  };
  driver->Begin({accept_nobody, [&loop] { loop.Quit(0); }});
  const int status = loop.Run();
  accept_nobody();
  // Everybody has been told; what is left is memory.
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace

int CoordinatorMain(int argc, char** argv) {
  InitLog("coordinator", LogLevel::kInfo);  // its announcements are the story of the job
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error like a full disk
  // A scheduler signals every process of a job at once; what follows the front end tells us.
  for (const int signo : {SIGTERM, SIGINT, SIGHUP}) std::signal(signo, SIG_IGN);
  std::string job_folder;
  std::string socket;
  int ready_fd = -1;
  Flags flags(
      "train-coordinator",
      "train-coordinator: coordinates one job. Started by traind; trainctl stop ends the job.\n\n"
      "Example: train-coordinator --job-folder /var/lib/trainctl/jobs/ab12 --socket "
      "/run/trainctl/ab12.job",
      TRAINCTL_VERSION);
  flags.Add("--job-folder", &job_folder, "DIR", "folder with the job's spec.pb and journal");
  flags.Add("--socket", &socket, "PATH", "listen at this unix socket");
  flags.Add("--ready-fd", &ready_fd, Flags::kDescriptors,
            "write one line to this descriptor when listening");
  flags.Require("--job-folder");
  flags.Require("--socket");
  if (const std::optional<int> ended = flags.Parse(argc, argv)) return *ended;
  const absl::StatusOr<int> status = Run(job_folder, socket, ready_fd);
  if (status.ok()) return *status;
  LogError("coordinate the job in ", job_folder, ": ", status.status().message());
  TellReady(ready_fd, status.status());
  return 1;
}

}  // namespace trainctl

#include "runtime/node/daemon_main.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/flags.h"
#include "runtime/base/log.h"
#include "runtime/base/loop.h"
#include "runtime/base/network.h"
#include "runtime/base/places.h"
#include "runtime/base/program.h"
#include "runtime/base/status.h"
#include "runtime/node/daemon.h"
#include "runtime/node/node_service.h"
#include "runtime/node/part.h"
#include "runtime/node/unit.h"
#include "runtime/rpc/tcp_listener.h"
#include "runtime/rpc/unix_listener.h"
#include "runtime/security/cluster_key.h"
#include "runtime/security/tls_files.h"

namespace trainctl {
namespace {

// Port at which daemons listen for invitations unless another is chosen.
constexpr int kDaemonPort = 7676;

// Root's daemons run anybody's invitation as root, so their key must be the cluster's, made on
// purpose.
absl::StatusOr<std::string> KeyForListening(const Endpoint& endpoint) {
  if (::geteuid() == 0 && ::access(SystemKeyPath().c_str(), F_OK) != 0 &&
      !IsLoopbackAddress(endpoint.name)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "listen at ", endpoint.ToString(), ": there is no cluster key ", SystemKeyPath(),
        ", so nobody could prove to be a node of ours; make one: trainctl key new"));
  }
  return ChooseKeyFile();
}

absl::StatusOr<std::unique_ptr<TcpListener>> ListenForPeers(Loop* loop, const Endpoint& endpoint,
                                                            const DaemonOptions& options,
                                                            grpc::Service* service) {
  ASSIGN_OR_RETURN(
      const TlsIdentity identity,
      LoadIdentity(options.tls, PeerName::Node(ThisNode(options.node).node), kNodeValidity));
  return TcpListener::Listen(loop, endpoint, identity, {service});
}

// `listen`: where other nodes may invite this one; empty: nowhere.
absl::StatusOr<int> Run(DaemonOptions options, const std::string& listen, int ready_fd) {
  RETURN_IF_ERROR(MakePrivateFolder(options.state_folder));
  Endpoint endpoint;
  if (!listen.empty()) {
    ASSIGN_OR_RETURN(endpoint, ParseEndpoint(listen, kDaemonPort));
    if (options.tls.certificate.empty() && options.tls.key.empty()) {
      ASSIGN_OR_RETURN(options.tls.key, KeyForListening(endpoint));
    }
  }
  Loop loop;
  Unit unit(&loop);
  options.scopes = !options.private_daemon && IsMainProcessOfUnit();
  Daemon daemon(&loop, options);
  for (const int signo : {SIGTERM, SIGINT}) {
    loop.OnSignal(signo, [&](int) {
      // A scheduler signals every process of a job at once; what is to be done about it the front
      // end tells, which ends the job. A daemon of the system leaves its jobs: their shims wait for
      // the next one.
      if (options.private_daemon && !daemon.idle()) return;
      unit.Stopping();
      loop.Quit(0);
    });
  }
  NodeServiceImpl service(&loop, &daemon);
  // It stays when we end, however empty: another process may be about to put something into it.
  RETURN_IF_ERROR(MakePrivateFolder(SocketFolder()));
  ASSIGN_OR_RETURN(std::unique_ptr<UnixListener> listener,
                   UnixListener::Listen(&loop, options.socket, {&service}));
  PeerServiceImpl peer_service(&loop, &daemon);
  std::unique_ptr<TcpListener> peer_listener;
  if (!listen.empty()) {
    ASSIGN_OR_RETURN(peer_listener, ListenForPeers(&loop, endpoint, options, &peer_service));
  }
  RETURN_IF_ERROR(daemon.Begin());
  TellReady(ready_fd, absl::OkStatus());
  unit.Ready();
  const int status = loop.Run();
  listener->Close();
  // Nothing of ours needs tearing down, and callers see the end of the connection at once.
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace

int DaemonMain(int argc, char** argv) {
  InitLog("traind");
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error like a full disk
  std::signal(SIGHUP, SIG_IGN);
  Flags flags(
      "traind",
      "traind: runs on a node and starts jobs there. Usually started by trainctl launch (then "
      "private: it ends with its job) or by systemd.\n\nExample: traind --socket "
      "/tmp/trainctl-1000/traind.sock",
      TRAINCTL_VERSION);
  DaemonOptions options;
  options.socket = DaemonSocket();
  options.state_folder = StateFolder();
  std::string listen;
  int ready_fd = -1;
  flags.Add("--socket", &options.socket, "PATH", "listen at this unix socket");
  flags.Add("--state-dir", &options.state_folder, "DIR", "jobs are kept below this folder");
  flags.AddSwitch("--private", &options.private_daemon, "run one job and end with it");
  flags.Add("--adopt", &options.adopt, "JOB",
            "take over this job, whose daemon died (with --private)");
  flags.Add("--node", &options.node, "NAME", "name of this node (default: the machine's)");
  flags.Add("--listen", &listen, "ADDR[:PORT]",
            "let coordinators of other nodes that have the key invite this one to jobs "
            "(default port 7676)");
  flags.Add("--key", &options.tls.key, "FILE",
            "cluster key (default: root's /etc/trainctl/cluster.key, else the user's own)");
  flags.Add("--tls-cert", &options.tls.certificate, "FILE",
            "certificate of this node, instead of a cluster key");
  flags.Add("--tls-key", &options.tls.private_key, "FILE", "its private key");
  flags.Add("--tls-ca", &options.tls.authority, "FILE",
            "whoever has a certificate from here is a node of ours");
  flags.NeedsAll({"--tls-cert", "--tls-key", "--tls-ca"});
  flags.Add("--ready-fd", &ready_fd, Flags::kDescriptors,
            "write one line to this descriptor when listening");
  if (const std::optional<int> ended = flags.Parse(argc, argv)) return *ended;
  const absl::StatusOr<int> status = Run(std::move(options), listen, ready_fd);
  if (status.ok()) return *status;
  LogError(status.status().message());
  TellReady(ready_fd, status.status());
  return 1;
}

}  // namespace trainctl

// The front end's side of a node that takes part in a job whose coordinator is on another one.
#ifndef TRAINCTL_LAUNCHER_PART_CLIENT_H_
#define TRAINCTL_LAUNCHER_PART_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/node_role.h"
#include "runtime/base/loop.h"
#include "runtime/base/network.h"
#include "runtime/base/time.h"
#include "runtime/rpc/channel.h"
#include "runtime/security/tls_files.h"

namespace trainctl {

// The job that coordinates at an endpoint.
struct Enlisted {
  std::string job_id;
  std::string head;  // the coordinator's node
  Duration lease{0};
  Duration orphan_timeout{0};
  Endpoint coordinator;  // with the literal address at which it was reached
};

// Asks a coordinator which job it is, again and again until it answers: nodes may be started in any
// order. Callbacks run on `loop`'s thread, as does everything here; destroying it ends the asking.
class Enlistment {
 public:
  struct Callbacks {
    // Not reached yet, and why. After every try.
    std::function<void(const absl::Status& why)> on_waiting;
    // Last. FAILED_PRECONDITION: it is another job; UNAUTHENTICATED, PERMISSION_DENIED: the two
    // sides do not believe each other.
    std::function<void(absl::StatusOr<Enlisted> answer)> on_answer;
  };
  Enlistment(Loop* loop, ServiceAddress coordinator, const NodeRole& role, Callbacks callbacks);
  ~Enlistment();
  Enlistment(const Enlistment&) = delete;
  Enlistment& operator=(const Enlistment&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

struct PartStanding {
  enum class Kind { kJoining, kJoined, kOver, kLeft };
  Kind kind = Kind::kJoining;
  std::string reason;
  std::string outcome;  // of kOver
  int exit_status = 0;
  std::vector<int> worker_statuses = {};  // of kOver: of the workers here, by local rank
};

struct PartRequest {
  Enlisted job;
  OwnPart part;
  TlsFiles tls;
  std::vector<std::string> env;  // of the workers here, "NAME=value"
  std::string cwd;
};

// This node's part, held by its daemon for as long as the watch lives and for the job's orphan
// time-out beyond. Callbacks run on `loop`'s thread, as does everything here.
class PartWatch {
 public:
  struct Callbacks {
    std::function<void(const PartStanding& standing)> on_standing;
    // Last: after kOver or kLeft OK; else the daemon is gone (UNAVAILABLE) or refused.
    std::function<void(const absl::Status& status)> on_end;
  };
  // UNAVAILABLE in on_end if nobody listens at `daemon_socket`.
  PartWatch(Loop* loop, const std::string& daemon_socket, const PartRequest& request,
            Callbacks callbacks);
  ~PartWatch();
  PartWatch(const PartWatch&) = delete;
  PartWatch& operator=(const PartWatch&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_PART_CLIENT_H_

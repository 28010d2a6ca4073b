// The front end's side of a node's daemon.
#ifndef TRAINCTL_LAUNCHER_NODE_CLIENT_H_
#define TRAINCTL_LAUNCHER_NODE_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/coordinator/spec.h"
#include "launcher/node_role.h"
#include "runtime/base/time.h"

namespace trainctl {

struct StartedJob {
  std::string job_id;
  std::string job_folder;
  std::string job_socket;  // for JobWatch and JobClient
};
struct NodeDescribed {
  std::string node;
  std::string version;
  int64_t incarnation = 0;
  int pid = 0;
  int cores = 0;
  std::vector<std::string> jobs;  // ids of those that run
};

// Calls that wait for their answer. Thread-safe. UNAVAILABLE: nobody listens at the socket;
// PERMISSION_DENIED: the daemon does not let this user in.
class NodeClient {
 public:
  explicit NodeClient(const std::string& socket_path);
  ~NodeClient();

  // Empty job_id, job_folder and log_folder of `spec` are chosen by the daemon. Returns when the
  // job's coordinator listens.
  absl::StatusOr<StartedJob> Submit(const JobSpec& spec, const OwnPart& part = {},
                                    Duration timeout = seconds(30));
  // Makes sure that the job in this folder has a coordinator and that this node takes part.
  absl::StatusOr<StartedJob> Resume(const std::string& job_folder, Duration timeout = seconds(30));
  absl::Status LeaveJob(const std::string& job_id, Duration timeout = seconds(5));
  absl::StatusOr<NodeDescribed> Describe(Duration timeout = seconds(5));

 private:
  struct Channel;
  std::unique_ptr<Channel> channel_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_NODE_CLIENT_H_

// Asks the daemons of a job's nodes to take part in it, and asks again as long as one is away: it
// may have been started again, or be about to.
#ifndef TRAINCTL_LAUNCHER_INVITER_H_
#define TRAINCTL_LAUNCHER_INVITER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/coordinator/spec.h"
#include "proto/node.pb.h"
#include "runtime/base/loop.h"
#include "runtime/base/time.h"
#include "runtime/security/authority.h"

namespace trainctl {

// Lives on the loop's thread; destroying it ends the asking.
class Inviter {
 public:
  // `port`: where we listen. `away`: the nodes that are not connected now.
  static absl::StatusOr<std::unique_ptr<Inviter>> Begin(
      Loop* loop, const JobSpec& spec, int port, std::function<std::vector<std::string>()> away);
  ~Inviter();
  Inviter(const Inviter&) = delete;
  Inviter& operator=(const Inviter&) = delete;

 private:
  struct Call;
  Inviter(Loop* loop, const JobSpec& spec, int port,
          std::function<std::vector<std::string>()> away);
  void AskAll();
  void Ask(const std::string& node);
  int SlotsOf(const std::string& node) const;
  void Answered(const std::string& node, const absl::Status& status);

  Loop* loop_;
  const JobSpec& spec_;
  const int port_;
  std::function<std::vector<std::string>()> away_;
  TlsIdentity identity_;
  std::map<std::string, std::shared_ptr<Call>> calls_;  // that are not answered yet, by node
  std::map<std::string, Instant> accepted_;             // when a node said yes last
  std::map<std::string, std::string> told_;             // what the log was told of a node last
  Duration pause_;
  Loop::TimerId timer_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_INVITER_H_

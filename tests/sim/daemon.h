// A node's daemon around the real node state and pulse. It does what runtime/node does with a
// shim, a Join stream and, on the head node, the coordinator's process.
#ifndef TRAINCTL_TESTS_SIM_DAEMON_H_
#define TRAINCTL_TESTS_SIM_DAEMON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/coordinator/event.h"
#include "runtime/local/frames.h"
#include "runtime/node/node_state.h"
#include "runtime/node/pulse.h"
#include "tests/sim/network.h"
#include "tests/sim/process.h"

namespace trainctl::sim {

class Node;
class Shim;
class World;

class Daemon {
 public:
  Daemon(World* world, Node* node);

  void Start();  // a new incarnation
  void Kill();
  void LosePower();
  Process& process() { return process_; }
  int64_t incarnation() const { return incarnation_; }
  bool joined() const { return stream_ != kNoStream; }

  // From the shim.
  void OnShimFrame(uint32_t link, frame::Frame frame);
  void OnShimClosed(uint32_t link);  // a newer daemon has it
  void OnShimDead(Shim* shim);
  // From the network.
  void OnOrder(StreamId stream, Order order);
  void OnCoordinatorClosed(StreamId stream);
  void Answer(Event event);  // to a probe
  // A fault: a coordinator that was replaced still gives orders.
  void HearOldTerm();
  // From the kernel, on the head node.
  void OnCoordinatorDied(bool well);

 private:
  bool head() const;
  void AdoptOrStartShim();
  void TakeFrame(frame::Frame frame);
  void JoinIfReady();
  void CloseStream();
  std::vector<Event> Opening() const;
  void Asked();
  void ArmPulse();
  void CheckPulse();
  void StartCoordinator();
  void ToShim(frame::Frame frame);

  World* world_;
  Node* node_;
  Process process_;
  int64_t incarnation_ = 0;
  NodeState state_;
  std::optional<Pulse> pulse_;
  Shim* shim_ = nullptr;
  uint32_t link_ = 0;  // to it
  bool shim_known_ = false;
  bool released_ = false;
  bool job_over_ = false;
  uint64_t lease_request_ = 0;
  StreamId stream_ = kNoStream;
  Duration backoff_{0};
  int shim_deaths_ = 0;
  int coordinator_deaths_ = 0;
  Process::Timer pulse_timer_;
  Process::Timer dial_timer_;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_DAEMON_H_

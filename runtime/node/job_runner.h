// One job on this node: its shim, its stream to the coordinator and, on the coordinator's own node,
// that one's process. It relays; it decides nothing about the job.
#ifndef TRAINCTL_RUNTIME_NODE_JOB_RUNNER_H_
#define TRAINCTL_RUNTIME_NODE_JOB_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/node.pb.h"
#include "runtime/base/loop.h"
#include "runtime/node/coordinator_process.h"
#include "runtime/node/gpu_watch.h"
#include "runtime/node/join_stream.h"
#include "runtime/node/node_state.h"
#include "runtime/node/prober.h"
#include "runtime/node/pulse.h"
#include "runtime/node/shim_link.h"
#include "runtime/node/wire.h"
#include "runtime/rpc/channel.h"
#include "runtime/topology/worker_binding.h"

namespace trainctl {

// Lives on the loop's thread. Destroying it leaves the job running.
class JobRunner {
 public:
  struct Job {
    std::string job_id;
    std::string folder;  // exists; with a coordinator of our own it is the job's and holds spec.pb
    std::string shim_socket;
    int slots = 1;
    Duration lease{0};
    std::vector<std::string> gpus;  // locked
    WorkerBinding binding;
    bool scope = false;                         // see ShimPlace
    std::optional<ServiceAddress> coordinator;  // on another node; nullopt: we start it
    // Of the workers, instead of the coordinator's node's, where the user typed the command here
    // too.
    std::vector<std::string> env;
    std::string cwd;
  };
  struct Callbacks {
    // Once: the coordinator listens, or why it never will. Not called if it is on another node.
    std::function<void(const absl::Status& status)> on_listening;
    // Where this node stands with a coordinator on another one; the last is OVER or LEFT.
    std::function<void(const v1::PartUpdate& update)> on_standing;
    // The node is to end as if its power were cut; the shim is dead already.
    std::function<void()> on_vanish;
    // Last: the job is over on this node and nothing of it runs here any more, or another daemon
    // has it. The owner destroys the runner later, not during the call.
    std::function<void()> on_over;
  };
  JobRunner(Loop* loop, NodeFacts facts, Job job, Callbacks callbacks);
  ~JobRunner();
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Starts shim and coordinator, each only if it does not live already.
  void Begin();
  // Ends the workers of this node and takes part no more; on_over follows.
  void Leave(const std::string& reason);
  const Job& job() const { return job_; }
  std::string job_socket() const;

 private:
  void OnShimFrame(frame::Frame frame);
  void GatherOutput(frame::Output output);
  void SendOutput();
  void OnShimDead(absl::string_view reason);
  void OnOrder(const v1::NodeOrder& order);
  void StartWhenFree(frame::StartEpoch start);
  void KeepPlace();
  void SendHeld();
  void OnGpuError(const GpuError& error);
  void SendNote(const std::string& text);
  void TellListening(const absl::Status& status);
  void StartShim();
  void WatchGpus(bool fresh);
  void ShimFailed(bool began, absl::string_view why);
  void GiveUp(absl::string_view why);
  void TellIfListening();
  void JoinIfReady();
  void OnStreamLost(const absl::Status& why);
  void OnRefused(const absl::Status& why);
  void Stand(v1::PartUpdate::Standing standing, absl::string_view reason);
  void EndJob(absl::string_view reason);
  void Over();
  std::vector<v1::NodeMessage> Opening();
  void Asked();
  void ArmPulse();
  void CheckPulse();

  Loop* loop_;
  const NodeFacts facts_;
  const Job job_;
  Callbacks callbacks_;
  NodeState state_;
  ShimLink shim_;
  std::unique_ptr<CoordinatorProcess> coordinator_;  // null if it is on another node
  Pulse pulse_;
  JoinStream join_;
  Prober prober_;
  v1::OutputBatch output_;  // not sent yet
  size_t output_bytes_ = 0;
  Loop::TimerId pulse_timer_{};
  Loop::TimerId rejoin_timer_{};
  Loop::TimerId leave_timer_{};
  Instant heard_at_;  // of a coordinator on another node
  v1::PartUpdate standing_;
  std::unique_ptr<GpuWatch> gpus_;         // null: the workers have no GPU from us
  std::optional<frame::StartEpoch> held_;  // until the memory of its GPUs is free
  Loop::TimerId held_timer_{};
  uint64_t lease_request_ = 0;  // the newest of the shim that was not answered; 0: none
  bool shim_known_ = false;     // its state was told since it was started
  std::string unfit_;           // why no shim can live here; empty: one can
  bool shim_adopted_ = false;
  bool listening_ = false;
  bool told_ = false;
  bool released_ = false;  // by the coordinator: the shim may end
  bool leaving_ = false;   // and the coordinator is being told
  bool ending_ = false;
  bool over_ = false;
  Instant shim_started_;
  int shim_deaths_ = 0;  // in a row, each soon after its start
  Loop::TimerId shim_retry_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_JOB_RUNNER_H_

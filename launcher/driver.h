// Runs one job's coordinator: turns messages and time into events, makes what it decides durable,
// and then does it. Decides nothing itself.
#ifndef TRAINCTL_LAUNCHER_DRIVER_H_
#define TRAINCTL_LAUNCHER_DRIVER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/coordinator/action.h"
#include "launcher/coordinator/coordinator.h"
#include "launcher/coordinator/event.h"
#include "launcher/coordinator/spec.h"
#include "launcher/journal.h"
#include "launcher/node_links.h"
#include "launcher/report.h"
#include "launcher/store.h"
#include "launcher/transport.h"
#include "launcher/watchers.h"
#include "runtime/base/loop.h"

namespace trainctl {

// Lives on the loop's thread.
class Driver {
 public:
  // Reads DIR/spec.pb and opens DIR/journal, which makes this the job's only coordinator. Nothing
  // runs yet. The error says why a job cannot have a coordinator.
  static absl::StatusOr<std::unique_ptr<Driver>> Open(Loop* loop, const std::string& job_folder);

  struct Callbacks {
    std::function<void()> on_told;  // everybody is being told of the end: accept nobody any more
    std::function<void()> on_over;  // they have been told; the process may end
  };
  const JobSpec& spec() const { return spec_; }
  // Begins the job or goes on with it.
  void Begin(Callbacks callbacks);

  // From the service.
  void AddNode(NodeStream* stream, std::optional<PeerName> caller) {
    nodes_.Add(stream, std::move(caller));
  }
  // FAILED_PRECONDITION: the caller means another job than this one, or comes too late.
  absl::StatusOr<v1::EnlistReply> Enlist(const v1::EnlistRequest& request) const;
  void AddWatcher(WatchFeed* feed, const v1::WatchRequest& request);
  v1::JobState State() const;
  // Of spec.nodes, those without a stream.
  std::vector<std::string> NodesAway() const;
  void Stop(const StopAsked& order);
  absl::Status Signal(int signo, const std::vector<int>& ranks);  // no ranks: all
  // NOT_FOUND: there is no such node now. FAILED_PRECONDITION: it is the coordinator's own.
  absl::Status KillNode(const std::string& node);
  // NOT_FOUND: the job does not know the node.
  absl::Status Drain(const DrainAsked& order);

 private:
  Driver(Loop* loop, JobSpec spec, Journal journal);

  void Tell(Event event);
  void Pump();
  void Perform(const Batch& batch);
  void Do(const StartWorkers& action);
  void Do(const StopWorkers& action);
  void Do(const DiagnoseWorkers& action);
  void Do(const AnswerLease& action);
  void Do(const GrantCommit& action);
  void Do(const RequestCheckpoint& action);
  void Do(const ProbeAddress& action);
  void Do(const RefuseNode& action);
  void Do(const FindCheckpoints& action);
  void Do(const ReleaseNode& action);
  void Do(const OpenStore& action);
  void Do(const Announce& action);
  void Do(const FinishJob& action);
  void Fail(const absl::Status& status);

  void OnJoined(const v1::NodeState& state);
  void OnMessage(const std::string& node, Incarnation incarnation, v1::NodeMessage message);
  void OnProgress(const v1::Progress& progress);
  void AskForOutput(const std::vector<OutputFlow::Ask>& asks);
  void Publish(const std::string& node, const std::vector<v1::Exchange>& exchanges);
  void SendAnswers(const std::vector<Store::Answer>& answers);
  void RememberWorkers(const std::vector<WorkerState>& workers);

  void ArmTimer();
  void OnTimer();
  void WriteReport();
  void ShowState();

  // The end (driver_end.cc).
  bool OwnerMayCome() const;
  void ContinueEnding();
  void OutputCame();
  void WatcherCame();
  bool KeepWaitingForOwner();
  void ArmDrainTimer();
  std::vector<int> WorkerStatuses(const std::string& node) const;
  void TellFinished();
  void StreamsClosed();
  void ArmCloseTimer();
  void Over();

  Loop* loop_;
  const JobSpec spec_;
  Journal journal_;
  const Term term_;
  Coordinator coordinator_;
  Store store_;
  Report report_;
  Transports transports_;
  NodeLinks nodes_;
  Watchers watchers_;
  std::vector<Event> waiting_;  // events that came while a batch was performed
  bool stepping_ = false;
  std::map<int, WorkerState> workers_;  // of the current epoch, by rank
  std::vector<NodeShare> shares_;       // of the current epoch
  bool failed_ = false;
  Loop::TimerId timer_{};
  Loop::TimerId report_timer_{};
  Callbacks callbacks_;

  std::optional<Outcome> outcome_;  // the job is finished
  bool finished_before_ = false;    // it was already when this process began
  std::vector<std::string> to_release_;
  Instant drain_until_ = kNever;
  bool told_finished_ = false;
  bool told_of_slow_owner_ = false;
  int closing_ = 0;  // of nodes and watchers, how many have not hung up
  bool over_ = false;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_DRIVER_H_

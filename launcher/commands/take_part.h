// Launching on a node whose job is coordinated on another one: this node takes part, and the
// command ends as the job does.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_TAKE_PART_H_
#define TRAINCTL_LAUNCHER_COMMANDS_TAKE_PART_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/commands/daemon_choice.h"
#include "launcher/console.h"
#include "launcher/launch_request.h"
#include "launcher/part_client.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"

namespace trainctl {

// Signals are held from construction on. Not thread-safe; one per process.
class Participant {
 public:
  explicit Participant(bool json);

  // Finds the job, takes part and stays until it is over. SIGINT, SIGTERM, SIGHUP and SIGQUIT stop
  // a job that needs every node it has, and otherwise only this node's part; a second one ends the
  // part at once. A scheduler's SIGTERM is for the whole of a preemptible job. Returns the job's
  // exit status, or 128+N after signal N; 75 of a preempted job counts more. REQUIRES:
  // request.role.several.
  int Run(const LaunchRequest& request, const std::optional<std::string>& daemon_address);
  // After Run: as in PartStanding.
  std::vector<int> worker_statuses() const {
    return end_.has_value() ? end_->worker_statuses : std::vector<int>();
  }

 private:
  absl::StatusOr<ServiceAddress> Coordinator();
  void WaitForIt(const absl::Status& why);
  void OnAnswer(absl::StatusOr<Enlisted> answer);
  absl::Status BeginPart(Enlisted enlisted);
  absl::Status TakeName(const std::string& job_id, const std::string& head);
  absl::Status StartDaemon();
  void WatchPart();
  void OnStanding(const PartStanding& standing);
  void OnEnd(const absl::Status& status);
  void OnSignal(int signo);
  void StopJob();
  void Leave();
  void Say(absl::string_view text, bool warning = false);
  void RequeueIfLost();
  void Finish(int status);
  void GiveUp(const absl::Status& why);

  Loop& loop_;  // never destroyed: calls that are still open when we return post to it
  Console console_;
  const bool json_;
  const LaunchRequest* request_ = nullptr;
  std::optional<std::string> daemon_socket_;  // of a daemon that somebody else runs
  std::unique_ptr<Enlistment> enlistment_;
  Loop::TimerId give_up_{};
  Instant began_;
  Instant next_word_;
  PartRequest part_;
  TlsIdentity identity_;  // of the user, for calls to the coordinator
  Fd name_lock_;
  std::optional<PrivateDaemon> daemon_;
  int daemon_deaths_ = 0;  // in a row, each soon after its start
  Instant daemon_started_{};
  std::unique_ptr<PartWatch> watch_;
  std::optional<PartStanding> end_;
  Instant requeue_until_;
  bool joined_ = false;
  bool lost_ = false;
  int signal_ = 0;  // the first one
  int signals_ = 0;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_TAKE_PART_H_

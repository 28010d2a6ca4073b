// Staying with a job: shows it, passes on what the user asks by signals, ends with it.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_ATTACH_H_
#define TRAINCTL_LAUNCHER_COMMANDS_ATTACH_H_

#include <optional>
#include <string>

#include "launcher/commands/daemon_choice.h"
#include "launcher/display.h"
#include "launcher/node_client.h"
#include "runtime/base/loop.h"

namespace trainctl {

// One front end that stays. Signals are held from construction on, so that one which arrives while
// the job is being started stops it. Not thread-safe; one per process.
class Attachment {
 public:
  explicit Attachment(DisplayOptions options);

  // Shows the job until it ends. SIGINT, SIGTERM, SIGHUP and SIGQUIT (unless they were ignored when
  // the process began, as nohup does) stop it, a second one at once, a third one leaves it behind;
  // a closed stdout stops it, too. A job that was submitted, or `came_back` to and that has not
  // answered yet, is left by the first one and goes on. A private daemon that dies is started
  // again; for another one that dies, and that nobody starts again, a private one takes the job.
  // Returns the job's exit status, or 128+N after signal N; 75 of a preempted job counts more.
  int Stay(const StartedJob& job, std::optional<PrivateDaemon> daemon, bool came_back = false);
  // After Stay: as in JobEnded.
  std::vector<int> worker_statuses() const {
    return ended_.has_value() ? ended_->worker_statuses : std::vector<int>();
  }

 private:
  void OnStopSignal(int signo);
  void Leave();
  void AskStop(bool now);
  void OnUpdate(const JobUpdate& update);
  void OnEnd(const absl::Status& status);
  void WatchDaemon();
  void RestartDaemon();
  void ReplaceDaemon(absl::string_view done);
  std::string LogOfDaemon() const;
  void WatchOtherDaemon();
  void AwaitOtherDaemon(Instant give_up);
  std::optional<JobEnded> EndInReport() const;
  void LookForTheEnd();

  Loop& loop_;  // never destroyed: calls that are still open when we return post to it
  Console console_;
  Display display_;
  std::string job_id_;
  std::string job_folder_;
  std::string job_socket_;
  std::optional<PrivateDaemon> daemon_;
  Fd other_daemon_;        // pidfd of the one that the job belongs to, unless it is daemon_
  int daemon_deaths_ = 0;  // in a row, each soon after its start
  Instant daemon_started_{};
  bool heard_ = false;   // of the coordinator
  bool leaves_ = false;  // at the first signal
  bool seems_over_ = false;
  int stop_signal_ = 0;  // the first one
  int stops_asked_ = 0;
  std::optional<JobEnded> ended_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_ATTACH_H_

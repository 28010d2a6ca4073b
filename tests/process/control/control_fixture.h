// A real traind with its coordinator and shim, a front end that watches, and shell workers. Every
// wait has a deadline and says what it waited for.
#ifndef TRAINCTL_TESTS_PROCESS_CONTROL_CONTROL_FIXTURE_H_
#define TRAINCTL_TESTS_PROCESS_CONTROL_CONTROL_FIXTURE_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"
#include "launcher/coordinator/spec.h"
#include "launcher/job_client.h"
#include "launcher/node_client.h"
#include "runtime/base/loop.h"
#include "runtime/base/mutex.h"
#include "runtime/base/program.h"
#include "runtime/base/time.h"

namespace trainctl::testing {

inline constexpr Duration kDeadline = seconds(30);

bool WaitUntil(const std::function<bool()>& done, const std::string& what);
bool Alive(pid_t pid);                                        // a zombie is not
std::vector<pid_t> ProcessesNaming(const std::string& text);  // in their command line, not ours

// A front end: everything that a watch was told, on a thread of its own.
class FrontEnd {
 public:
  FrontEnd(const std::string& socket, WatchOptions options);
  ~FrontEnd();

  std::optional<JobEnded> AwaitEnd();
  bool Await(const std::function<bool(FrontEnd&)>& done, const std::string& what);
  // Until the coordinator knows that all workers run: what is killed before that is started again
  // in the same epoch.
  bool AwaitRunning();
  std::string Output(int rank, int stream = 1);  // of all epochs, in the order of the epochs
  std::vector<std::string> Announcements();
  JobDescription State();
  absl::Status end_status();
  // While held, updates are not taken: a front end that is stopped.
  void Hold() ABSL_EXCLUSIVE_LOCK_FUNCTION(hold_) { hold_.Lock(); }
  void Unhold() ABSL_UNLOCK_FUNCTION(hold_) { hold_.Unlock(); }

 private:
  void Take(JobUpdate update);

  Mutex mutex_;
  Mutex hold_;
  std::map<std::pair<int64_t, std::pair<int, int>>, std::string> output_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> announcements_ ABSL_GUARDED_BY(mutex_);
  JobDescription state_ ABSL_GUARDED_BY(mutex_);
  std::optional<JobEnded> ended_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_status_ ABSL_GUARDED_BY(mutex_);
  Loop loop_;
  std::unique_ptr<JobWatch> watch_;
  std::thread thread_;
};

class Control : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;  // whatever is left is killed, and must have been none

  // Returns once it listens; `more` are further flags.
  absl::Status StartDaemon(const std::vector<std::string>& more = {"--private"});
  void KillDaemon();
  bool AwaitDaemonEnd();
  JobSpec Spec(const std::string& script, int workers = 2) const;
  StartedJob Submit(const JobSpec& spec);
  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  pid_t ProcessOf(const std::string& program) const;  // of this test's job; 0: none

  std::string folder_;
  std::string daemon_socket_;
  Child daemon_;
  StartedJob job_;
};

}  // namespace trainctl::testing

#endif  // TRAINCTL_TESTS_PROCESS_CONTROL_CONTROL_FIXTURE_H_

// A real train-shim and the daemon and workers that talk to it, for tests. Every wait has a
// deadline and says what it waited for.
#ifndef TRAINCTL_TESTS_PROCESS_SHIM_FIXTURE_H_
#define TRAINCTL_TESTS_PROCESS_SHIM_FIXTURE_H_

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/fd.h"
#include "runtime/base/time.h"
#include "runtime/local/frames.h"

namespace trainctl::testing {

inline constexpr Duration kDeadline = seconds(20);

inline constexpr char kForever[] = "while :; do sleep 1000; done";
// Shell code that starts grandchildren in sessions of their own, deaf, stopped and orphaned (the
// ways out of a process tree), waits until all of them are there, and prints "escaped".
inline const std::string kEscape =
    "me=escape.$$; "
    "setsid sh -c 'trap \"\" TERM HUP; echo > '$me'.1; while :; do sleep 1000; done' & "
    "(setsid sh -c 'trap \"\" TERM HUP; echo > '$me'.2; kill -STOP $$; sleep 1000' &) ; "
    "(sh -c 'echo > '$me'.3; exec sleep 1000' &) ; "
    "for i in 1 2 3; do while [ ! -s $me.$i ]; do sleep 0.01; done; done; echo escaped; ";
inline const std::string kEscaper = kEscape + kForever;

// Waits until `done` holds; a test failure naming `what` after kDeadline.
bool WaitUntil(const std::function<bool()>& done, const std::string& what);
// Waits until `shell`, or the one child it has, has become sleep(1) and sleeps.
void AwaitSleep(pid_t shell);

// The far end of a connection to the shim.
class Peer {
 public:
  Peer() = default;
  Peer(const std::string& socket, const frame::Hello& hello);
  explicit Peer(Fd socket) : socket_(std::move(socket)) {}

  // After StartEpoch also what a daemon does then: it passes on that the order still holds.
  void Send(const frame::Frame& frame);
  bool confirms = true;
  // All of both streams of ranks 0 … workers-1 from `offset` on.
  void AskForOutput(int64_t epoch, int workers, uint64_t offset = 0);
  void SendBytes(const std::string& bytes);
  void Close() { socket_.Close(); }

  // The next frame; nullopt at the end of the connection. Fails the test after `deadline`.
  Duration deadline = kDeadline;
  std::optional<frame::Frame> Next();
  // Skips frames until a T for which `wanted` holds; all frames seen stay in seen(). An empty T if
  // there was none, and the test has failed.
  template <typename T>
  T Await(const std::function<bool(const T&)>& wanted = [](const T&) { return true; }) {
    while (std::optional<frame::Frame> frame = Next()) {
      if (const T* found = std::get_if<T>(&*frame); found != nullptr && wanted(*found)) {
        return *found;
      }
    }
    ADD_FAILURE() << "the connection ended before the awaited frame";
    return T{};
  }
  bool AwaitEnd();  // reads until the shim closes the connection

  const std::vector<frame::Frame>& seen() const { return seen_; }
  // Output so far, from the Output frames seen, by (rank, stream). Fails the test if a byte is
  // missing or doubled.
  std::string OutputOf(int32_t rank, uint8_t stream) const;
  bool keep_output = true;  // false: only counted, for floods
  uint64_t output_bytes = 0;

 private:
  void Confirm(int64_t term);
  std::optional<frame::Frame> Receive();

  Fd socket_;
  frame::Decoder decoder_;
  std::deque<frame::Frame> early_;  // came before the confirmation
  int states_ = 0;                  // ShimStates so far
  std::vector<frame::Frame> seen_;
  std::map<std::pair<int32_t, int>, std::pair<uint64_t, std::string>>
      output_;  // first offset, bytes
};

class Shim : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;  // whatever the test left is killed, and must have been none

  void StartShim(int slots, const std::string& lease = "10s",
                 const std::vector<std::string>& more = {});
  Peer ConnectDaemon(int64_t incarnation = 1);
  Peer ConnectWorker(int32_t rank, int64_t epoch);
  pid_t FindSupervisor() const;
  int WaitForShimExit();  // its exit status, -1 after the deadline

  // An epoch in which each worker runs one shell script.
  frame::StartEpoch Scripts(int64_t epoch, const std::vector<std::string>& scripts) const;
  // Living processes whose environment carries this test's mark: independent of what the shim
  // believes.
  std::vector<pid_t> MarkedProcesses() const;
  void ExpectNothingLeft() const;
  std::string LogPath(int64_t epoch, int rank, const std::string& name) const;

  std::string folder_;
  std::string socket_;
  std::string mark_;
  pid_t keeper_ = 0;
};

}  // namespace trainctl::testing

#endif  // TRAINCTL_TESTS_PROCESS_SHIM_FIXTURE_H_

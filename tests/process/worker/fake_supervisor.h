// Stands in for shim, daemon and coordinator of one epoch: answers the frames of all ranks of a job
// over a real unix socket, and owns their pages.
#ifndef TRAINCTL_TESTS_PROCESS_WORKER_FAKE_SUPERVISOR_H_
#define TRAINCTL_TESTS_PROCESS_WORKER_FAKE_SUPERVISOR_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"
#include "runtime/base/mutex.h"
#include "runtime/local/frames.h"
#include "runtime/local/page.h"
#include "runtime/worker/communicator.h"
#include "runtime/worker/gloo_communicator.h"
#include "runtime/worker/session.h"

namespace trainctl {

class FakeSupervisor {
 public:
  explicit FakeSupervisor(int world_size);
  ~FakeSupervisor() { Close(); }

  // A session of `rank` made from the environment, as in a worker. Thread-safe; also for children
  // forked after the constructor.
  std::unique_ptr<Session> MakeSession(int rank);
  WorkerPage& page(int rank) { return *pages_[static_cast<size_t>(rank)].get(); }
  void Close();  // closes every connection, as if the supervisor had died

  std::vector<frame::Frame> received() ABSL_LOCKS_EXCLUDED(mutex_);  // all but Hello and Exchange

 private:
  struct Connection {
    Fd fd;
    int rank = -1;
    frame::Decoder decoder;
  };
  void Serve();
  bool Read(Connection& connection);
  void Answer(Connection& connection, frame::Frame message) ABSL_LOCKS_EXCLUDED(mutex_);

  const int world_size_;
  std::string folder_;
  std::string socket_path_;
  std::vector<MappedPage> pages_;
  std::vector<Fd> page_fds_;
  Fd listener_;
  Fd stop_;
  std::thread thread_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::string, std::map<int, std::string>> exchanges_;
  std::map<int64_t, std::map<int, frame::Shard>> shards_;
  Mutex mutex_;
  std::vector<frame::Frame> received_ ABSL_GUARDED_BY(mutex_);
};

// Runs `body` in one thread for each rank, each with its own session and communicator.
void RunRanks(int world_size, const std::function<void(Session&, Communicator&)>& body,
              const CommunicatorOptions& options = {});

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_PROCESS_WORKER_FAKE_SUPERVISOR_H_

// Connections of one worker to every other one, by Gloo's TCP transport. The only place that calls
// Gloo: its exceptions end here, every wait has a deadline and wakes at once when something fails.
//
// One thread at a time sends and receives; Fail may be called from any.
#ifndef TRAINCTL_RUNTIME_WORKER_GLOO_MESH_H_
#define TRAINCTL_RUNTIME_WORKER_GLOO_MESH_H_

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"
#include "runtime/base/time.h"

namespace trainctl {

// How long a wait may last, and what it is for.
struct Patience {
  std::string what;  // names the operation in messages
  Duration timeout;
  Instant deadline;  // the end of `timeout`
};

// A rank that did not come in time is named in a payload of the status under this key, in decimal.
inline constexpr char kAbsentRank[] = "trainctl/absent-rank";

class GlooMesh {
 public:
  // Gives this rank's address text to the others and returns all ranks' texts, by rank.
  using Publish = std::function<absl::StatusOr<std::vector<std::string>>(const std::string&)>;
  // Collective. `interface` is a network interface's name. Size 1 needs neither.
  static absl::StatusOr<std::unique_ptr<GlooMesh>> Connect(int rank, int size,
                                                           const std::string& interface,
                                                           Duration timeout,
                                                           const Publish& publish);
  // Says goodbye, waits up to five seconds for the others to do the same (a connection that is
  // closed too early may lose what was sent last), then closes. Does not wait after a failure.
  ~GlooMesh();

  // Memory that messages go to or come from, to and from one peer. Messages of one slot arrive in
  // the order in which they were sent. Destroying it ends its transfers; the memory is then free.
  class Buffer {
   public:
    Buffer() = default;

   private:
    friend class GlooMesh;
    std::unique_ptr<gloo::transport::UnboundBuffer> gloo_;
    int peer_ = -1;
  };
  absl::StatusOr<Buffer> MakeBuffer(int peer, void* data, size_t bytes);

  absl::Status PostReceive(Buffer& buffer, uint64_t slot, size_t offset, size_t bytes);
  absl::Status Send(Buffer& buffer, uint64_t slot, size_t offset, size_t bytes);
  // Wait for one transfer each, in the order in which they were started. DEADLINE_EXCEEDED and
  // UNAVAILABLE name the peer.
  absl::Status WaitReceived(Buffer& buffer, const Patience& patience);
  absl::Status WaitSent(Buffer& buffer, const Patience& patience);

  // The first failure wins; every call after it returns that.
  void Fail(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);
  // For waits that go past the mesh (shared memory): whether waiting on for `peer` makes sense. If
  // not, fails the mesh as a wait of its own would and returns that.
  absl::Status Check(int peer, const Patience& patience) ABSL_LOCKS_EXCLUDED(mutex_);
  // Called, on any thread, whenever Check may answer differently from before. Set it first.
  void OnChange(std::function<void()> callback) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all connections, so that nothing more arrives and the others notice. REQUIRES: failed.
  void Close();

 private:
  enum class Direction { kReceive, kSend };

  GlooMesh(int rank, int size) : rank_(rank), size_(size), left_(static_cast<size_t>(size)) {}
  absl::Status CreatePairs(const std::string& interface, Duration timeout, std::string* addresses);
  absl::Status ConnectPairs(const std::vector<std::string>& addresses, Duration timeout);
  absl::Status StartWatching();
  void Watch();
  void FindDeadPeer(absl::string_view found);
  void TakeGoodbyes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave();
  absl::Status Wait(Buffer& buffer, Direction direction, const Patience& patience)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void SetFailure(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LeftOrLate(int peer, bool left, const Patience& patience)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeWaiter() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool EverybodyLeft() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int rank_;
  const int size_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;

  mutable Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_change_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};                 // same as !failure_.ok(), for the fast path
  std::vector<char> left_ ABSL_GUARDED_BY(mutex_);  // peers that said goodbye
  Buffer* waiting_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Direction waiting_for_ ABSL_GUARDED_BY(mutex_) = Direction::kReceive;
  // From then on the transport may close all connections because of this wait, and the wait itself
  // says why.
  Instant waiting_until_ ABSL_GUARDED_BY(mutex_);

  // One receive from every peer is always posted here: the goodbye. Gloo fails it when the
  // connection breaks, also where it forgets a transfer that was half done.
  std::unique_ptr<gloo::transport::UnboundBuffer> goodbye_;
  std::vector<char> goodbye_bytes_;  // by peer; not zero once it has arrived
  std::thread watcher_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_GLOO_MESH_H_

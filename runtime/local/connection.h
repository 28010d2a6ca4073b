// Frames over one unix stream socket, without ever blocking. Two queues: control frames, and bulk
// frames (output) that are sent only while no control frame waits.
#ifndef TRAINCTL_RUNTIME_LOCAL_CONNECTION_H_
#define TRAINCTL_RUNTIME_LOCAL_CONNECTION_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"
#include "runtime/local/frames.h"

namespace trainctl {

// Lives on the loop's thread. Closes its socket when destroyed.
class Connection {
 public:
  struct Callbacks {
    std::function<void(frame::Frame)> on_frame;
    std::function<void()> on_batch_end;           // all frames that were there have been given
    std::function<void()> on_room;                // something was sent
    std::function<void(absl::Status)> on_closed;  // once; nothing follows it
  };
  Connection(Loop& loop, Fd socket, Callbacks callbacks);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Queue a frame; it is sent from the loop, never during the call. A peer that lets more than
  // kMaxQueuedBytes of control frames pile up is disconnected.
  void Send(const frame::Frame& frame);
  void SendBulk(const frame::Frame& frame);
  size_t queued_control() const { return queued_control_; }  // bytes
  size_t queued_bulk() const { return queued_bulk_; }
  bool idle() const { return current_.empty() && control_.empty() && bulk_.empty(); }

  // No callback follows; the owner may destroy it at leisure.
  void Close();

  static constexpr size_t kMaxQueuedBytes = size_t{160} << 20;

 private:
  void OnEvents(uint32_t events);
  void Read();
  void Write();
  void Fail(absl::Status why);
  size_t NextBuffers(iovec* buffers);
  void Sent(size_t bytes);
  void ArmWrite(bool wanted);
  void DropQueues();

  Loop& loop_;
  Fd socket_;
  Callbacks callbacks_;
  frame::Decoder decoder_;
  std::deque<std::string> control_;
  std::deque<std::string> bulk_;
  std::string current_;  // being sent; frames are never interleaved
  size_t sent_ = 0;
  size_t queued_control_ = 0;
  size_t queued_bulk_ = 0;
  bool current_is_bulk_ = false;
  bool armed_ = false;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_LOCAL_CONNECTION_H_

// Queues of work for a GPU, and marks in them.
#ifndef TRAINCTL_RUNTIME_DEVICE_STREAM_H_
#define TRAINCTL_RUNTIME_DEVICE_STREAM_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/time.h"

struct CUstream_st;
struct CUevent_st;

namespace trainctl {

using CudaStream = CUstream_st*;  // the same as cudaStream_t, without CUDA's header
using CudaEvent = CUevent_st*;

class Event;

// A queue of the device that was current when it was made. Does not wait for the default stream,
// nor it for this. Movable. Destroying it lets what was enqueued go on.
class Stream {
 public:
  enum class Priority { kNormal, kHigh };  // kHigh: its kernels start before others that wait

  Stream() = default;
  static absl::StatusOr<Stream> Create(Priority priority = Priority::kNormal);
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept;
  ~Stream() { Destroy(); }

  CudaStream get() const { return stream_; }

  // Everything that was enqueued is done. An error is that of some kernel or copy before.
  absl::StatusOr<bool> IsDone() const;
  absl::Status Wait() const;
  // DEADLINE_EXCEEDED names `what`. Looks again and again, at first without a pause.
  absl::Status WaitUntil(Instant deadline, absl::string_view what) const;
  // What is enqueued from now on waits for the mark.
  absl::Status WaitFor(const Event& event) const;

 private:
  explicit Stream(CudaStream stream) : stream_(stream) {}
  void Destroy();

  CudaStream stream_ = nullptr;
};

// A mark in a queue. Movable.
class Event {
 public:
  enum class Kind { kOrder, kTime };  // kTime can be measured between, and costs a little more

  Event() = default;
  static absl::StatusOr<Event> Create(Kind kind = Kind::kOrder);
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept;
  ~Event() { Destroy(); }

  CudaEvent get() const { return event_; }

  // Moves the mark to here.
  absl::Status Record(CudaStream stream) const;
  // The queue has come to the mark; also of one that was never recorded.
  absl::StatusOr<bool> IsDone() const;
  absl::Status Wait() const;
  // REQUIRES: both of kTime and done.
  absl::StatusOr<double> MillisecondsSince(const Event& earlier) const;

 private:
  explicit Event(CudaEvent event) : event_(event) {}
  void Destroy();

  CudaEvent event_ = nullptr;
};

// Between two looks at something that a GPU does: none in the first tenth of a millisecond after
// `since`, then longer and longer, up to half a millisecond.
void PauseBetweenLooks(Instant since);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_DEVICE_STREAM_H_

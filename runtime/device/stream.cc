#include "runtime/device/stream.h"

#include <cuda_runtime_api.h>
#include <time.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda_error.h"

namespace trainctl {
namespace {

// cudaErrorNotReady is an answer, but CUDA keeps it as this thread's last error.
absl::StatusOr<bool> Answer(cudaError_t error, absl::string_view doing) {
  if (error == cudaErrorNotReady) {
    ::cudaGetLastError();
    return false;
  }
  RETURN_IF_ERROR(CudaStatus(error, doing));
  return true;
}

}  // namespace

absl::StatusOr<Stream> Stream::Create(Priority priority) {
  int lowest = 0, highest = 0;
  RETURN_IF_ERROR(CudaStatus(::cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                             "ask for the priorities of streams"));
  CudaStream stream = nullptr;
  RETURN_IF_ERROR(
      CudaStatus(::cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                priority == Priority::kHigh ? highest : lowest),
                 "make a stream"));
  return Stream(stream);
}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    Destroy();
    stream_ = std::exchange(other.stream_, nullptr);
  }
  return *this;
}

void Stream::Destroy() {
  if (stream_ != nullptr) ::cudaStreamDestroy(stream_);
  stream_ = nullptr;
}

absl::StatusOr<bool> Stream::IsDone() const {
  return Answer(::cudaStreamQuery(stream_), "look at a stream of the GPU");
}

absl::Status Stream::Wait() const {
  return CudaStatus(::cudaStreamSynchronize(stream_), "wait for a stream of the GPU");
}

absl::Status Stream::WaitUntil(Instant deadline, absl::string_view what) const {
  const Instant begin = Now();
  while (true) {
    ASSIGN_OR_RETURN(const bool done, IsDone());
    if (done) return absl::OkStatus();
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, ": the GPU is not done after ", ToSeconds(deadline - begin), " s"));
    }
    PauseBetweenLooks(begin);
  }
}

absl::Status Stream::WaitFor(const Event& event) const {
  return CudaStatus(::cudaStreamWaitEvent(stream_, event.get(), 0),
                    "make a stream wait for an event");
}

absl::StatusOr<Event> Event::Create(Kind kind) {
  CudaEvent event = nullptr;
  RETURN_IF_ERROR(
      CudaStatus(::cudaEventCreateWithFlags(
                     &event, kind == Kind::kTime ? cudaEventDefault : cudaEventDisableTiming),
                 "make an event"));
  return Event(event);
}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    Destroy();
    event_ = std::exchange(other.event_, nullptr);
  }
  return *this;
}

void Event::Destroy() {
  if (event_ != nullptr) ::cudaEventDestroy(event_);
  event_ = nullptr;
}

absl::Status Event::Record(CudaStream stream) const {
  return CudaStatus(::cudaEventRecord(event_, stream), "record an event");
}

absl::StatusOr<bool> Event::IsDone() const {
  return Answer(::cudaEventQuery(event_), "look at an event of the GPU");
}

absl::Status Event::Wait() const {
  return CudaStatus(::cudaEventSynchronize(event_), "wait for an event of the GPU");
}

absl::StatusOr<double> Event::MillisecondsSince(const Event& earlier) const {
  float milliseconds = 0;
  RETURN_IF_ERROR(CudaStatus(::cudaEventElapsedTime(&milliseconds, earlier.event_, event_),
                             "measure the time between two events"));
  return milliseconds;
}

void PauseBetweenLooks(Instant since) {
  const int64_t waited = (Now() - since).count();
  if (waited < 100'000) return;
  const timespec pause{0, std::min<int64_t>(waited / 16, 500'000)};
  ::nanosleep(&pause, nullptr);
}

}  // namespace trainctl

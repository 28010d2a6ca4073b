#include "runtime/rpc/poller.h"

#include <grpcpp/completion_queue.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <thread>

#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/mutex.h"

// gRPC's question, redirected to us: by the linker where gRPC's archives are linked, by symbol
// precedence where its shared libraries are.
#ifdef TRAINCTL_GRPC_SHARED
bool grpc_iomgr_run_in_background();
bool grpc_iomgr_run_in_background() { return true; }
#else
extern "C" bool __wrap__Z28grpc_iomgr_run_in_backgroundv();
extern "C" bool __wrap__Z28grpc_iomgr_run_in_backgroundv() { return true; }
#endif

namespace trainctl {
namespace {

// Any queue's waiter looks at every socket of the process; this one has no events of its own.
void Poll(grpc::CompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
  }
}

// gRPC's own pool, its timers, its resolver, and ours.
constexpr size_t kThreads = 8;

void* AwaitLatch(void* latch) {
  const MutexLock open(static_cast<Mutex*>(latch));
  return nullptr;
}

// Its pollsets and wake-ups, and some connections with what is done for their calls.
constexpr size_t kDescriptors = 32;

absl::Status LookForDescriptors() {
  std::array<Fd, kDescriptors> held;
  for (Fd& fd : held) {
    fd = Fd(::eventfd(0, EFD_CLOEXEC));
    if (!fd.valid()) return ErrnoStatus(errno, "open the descriptors of gRPC");
  }
  return absl::OkStatus();
}

// All at the same time, as gRPC needs them. Costs a tenth of a millisecond, once.
absl::Status LookForThreads() {
  Mutex latch;
  std::array<pthread_t, kThreads> threads;
  size_t started = 0;
  int error = 0;
  {
    const MutexLock closed(&latch);
    while (error == 0 && started < kThreads) {
      error = pthread_create(&threads[started], nullptr, AwaitLatch, &latch);
      if (error == 0) ++started;
    }
  }
  for (size_t i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  if (error == 0) return absl::OkStatus();
  return ErrnoStatus(
      error,
      "start the threads of gRPC (raise the limit of processes, ulimit -u, of address "
      "space, ulimit -v, or of the control group's pids)");
}

bool StartThread() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the loop thread's
  auto* queue = new grpc::CompletionQueue;      // never deleted: the thread never ends
  std::thread thread(Poll, queue);
  pthread_setname_np(thread.native_handle(), "grpc-poller");
  thread.detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

}  // namespace

void EnsureGrpcPoller() {
  static const bool started = StartThread();
  static_cast<void>(started);
}

absl::Status CheckRoomForGrpc() {
  static const absl::Status& room = *new absl::Status([] {
    absl::Status threads = LookForThreads();
    return threads.ok() ? LookForDescriptors() : threads;
  }());
  return room;
}

}  // namespace trainctl

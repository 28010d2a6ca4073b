#include "runtime/rpc/poller.h"

#include <grpcpp/completion_queue.h>
#include <pthread.h>
#include <signal.h>

#include <thread>

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

}  // namespace trainctl

#include "tests/unit/nccl/fake_nccl.h"

#include <cstdlib>
#include <thread>

#include "runtime/nccl/nccl_api.h"

namespace trainctl {
namespace {

FakeNccl state;
std::atomic<int> looks_left{0};
int communicator;

class Inside {
 public:
  Inside() {
    if (state.inside.fetch_add(1) > 0) state.overlapped = true;
  }
  ~Inside() { state.inside.fetch_sub(1); }
};

void HoldWhile(const std::atomic<bool>& held) {
  while (held.load()) std::this_thread::yield();
}

NcclResult Begin(int looks) {
  looks_left = looks;
  return looks == 0 ? kNcclSuccess : kNcclInProgress;
}

NcclResult Collective() {
  Inside inside;
  ++state.calls;
  HoldWhile(state.hold_call);
  if (state.result != kNcclSuccess) return static_cast<NcclResult>(state.result.load());
  return Begin(state.looks_of_call);
}

}  // namespace

extern "C" {

FakeNccl* FakeNcclState() { return &state; }

NcclResult ncclGetVersion(int* version) {
  *version = state.version;
  return kNcclSuccess;
}
const char* ncclGetErrorString(NcclResult result) {
  return result == kNcclRemoteError ? "remote process exited or there was a network error"
                                    : "some error";
}
const char* ncclGetLastError(NcclComm) { return "the last words of the library"; }
NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  for (char& byte : id->bytes) byte = 'u';
  return static_cast<NcclResult>(state.id_result.load());
}
NcclResult ncclCommInitRankConfig(NcclComm* comm, int, NcclUniqueId, int, NcclConfig* config) {
  Inside inside;
  ++state.inits;
  state.blocking = config->blocking;
  HoldWhile(state.hold_init);
  *comm = reinterpret_cast<NcclComm>(&communicator);
  return Begin(state.looks_of_init);
}
NcclResult ncclCommGetAsyncError(NcclComm, NcclResult* result) {
  Inside inside;
  ++state.looks;
  if (looks_left != 0) {
    if (looks_left > 0) --looks_left;
    *result = kNcclInProgress;
  } else {
    *result = static_cast<NcclResult>(state.async_result.load());
  }
  return kNcclSuccess;
}
NcclResult ncclCommFinalize(NcclComm) {
  Inside inside;
  ++state.finalized;
  return Begin(state.looks_of_finalize);
}
NcclResult ncclCommDestroy(NcclComm) {
  Inside inside;
  ++state.destroyed;
  return kNcclSuccess;
}
NcclResult ncclCommAbort(NcclComm) {
  Inside inside;
  ++state.aborted;
  return kNcclSuccess;
}
NcclResult ncclAllReduce(const void*, void*, size_t, NcclType, NcclOp, NcclComm, CudaStream) {
  return Collective();
}
NcclResult ncclReduceScatter(const void*, void*, size_t, NcclType, NcclOp, NcclComm, CudaStream) {
  return Collective();
}
NcclResult ncclAllGather(const void*, void*, size_t, NcclType, NcclComm, CudaStream) {
  return Collective();
}
NcclResult ncclBroadcast(const void*, void*, size_t, NcclType, int, NcclComm, CudaStream) {
  return Collective();
}
NcclResult ncclMemAlloc(void** data, size_t bytes) {
  *data = std::malloc(bytes);
  return kNcclSuccess;
}
NcclResult ncclMemFree(void* data) {
  std::free(data);
  return kNcclSuccess;
}
NcclResult ncclCommRegister(NcclComm, void* data, size_t, void** registration) {
  Inside inside;
  ++state.enrolled;
  *registration = data;
  return kNcclSuccess;
}
NcclResult ncclCommDeregister(NcclComm, void*) {
  Inside inside;
  ++state.withdrawn;
  return kNcclSuccess;
}

}  // extern "C"

}  // namespace trainctl

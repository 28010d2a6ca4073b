// Communicator of the CUDA backend: NCCL between the workers' GPUs.
//
// A folder of its own and not a part of worker/: it needs a GPU's memory and streams (device/), and
// what trains on CPUs links neither.
//
// All data lies in memory of this rank's GPU. The calls of Communicator wait: what the caller
// enqueued before on the memory is done, and on return the result is there. The calls with a stream
// only enqueue, so that backward goes on meanwhile; Await ends them.
//
// Every rank gets the same bits. The order in which terms are added is NCCL's: it depends on size
// and place of the message and on the machine, so that a result depends on the layout of buckets.
// With `deterministic` it is the same in every run of the same layout on the same machines.
//
// A call that Abort wakes returns when the GPU no longer touches the caller's memory, which NCCL
// takes up to a second for.
//
// A lost peer is not noticed by NCCL within one node, nor quickly between nodes: whoever watches
// the workers tells the session, or calls Abort. After it, a new process always recovers; this one
// may connect again where recovers_in_process() says so.
#ifndef TRAINCTL_RUNTIME_NCCL_NCCL_COMMUNICATOR_H_
#define TRAINCTL_RUNTIME_NCCL_NCCL_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/time.h"
#include "runtime/nccl/communicator_gpu.h"
#include "runtime/nccl/nccl_api.h"
#include "runtime/worker/collective_record.h"
#include "runtime/worker/communicator.h"
#include "runtime/worker/session.h"

namespace trainctl {

struct NcclOptions {
  int device = -1;  // as CUDA numbers it; -1: LOCAL_RANK, or 0 if this process sees one GPU only
  std::string library;  // empty: libnccl.so.2
  // See nccl_link.h. A small all-reduce of two H200 takes 9.2 us when blocking (NCCL's own calls
  // 8.7) and 66 when polled, for which NCCL starts a thread each time.
  bool blocking = true;
  // Sets NCCL_ALGO=Ring and NCCL_NVLS_ENABLE=0 in this process's environment, unless the user set
  // them: then it is told in a note that the user's win. REQUIRES: no other thread is about to read
  // the environment, and NCCL was not used before.
  bool deterministic = false;
  std::string name = "nccl";  // of the exchange; another for each communicator of an epoch
  Duration connect_timeout = seconds(60);
  Duration collective_timeout = seconds(300);  // of one collective; then DEADLINE_EXCEEDED
};

// Memory that NCCL knows, so that it need not copy through buffers of its own, where the version
// can do that (2.19.1); else plain memory of the GPU. Movable. Ends before its communicator.
class NcclMemory {
 public:
  virtual ~NcclMemory() = default;
  virtual void* data() const = 0;
  virtual bool registered() const = 0;
};

class NcclCommunicator : public Communicator {
 public:
  virtual int version() const = 0;  // 22809 is 2.28.9
  virtual bool recovers_in_process() const = 0;

  // Sum in place, enqueued on `stream`. kFloat32, kFloat64, kFloat16, kBFloat16. The entry in the
  // worker page stays open until Await finds it done.
  virtual absl::Status EnqueueAllReduce(void* data, size_t count, ElementType type,
                                        CudaStream stream, int bucket = -1) = 0;
  virtual absl::Status EnqueueReduceScatter(const void* data, void* out, size_t count,
                                            ElementType type, CudaStream stream,
                                            int bucket = -1) = 0;
  virtual absl::Status EnqueueAllGather(const void* in, void* out, size_t bytes,
                                        CudaStream stream) = 0;
  virtual absl::Status EnqueueBroadcast(void* data, size_t bytes, int root, CudaStream stream) = 0;
  // Until all that was enqueued on `stream` is done, of others too; for at most one collective's
  // time-out.
  virtual absl::Status Await(CudaStream stream) = 0;

  // Collective: every rank asks for the same. `name` is the tensor's, for messages.
  virtual absl::StatusOr<std::unique_ptr<NcclMemory>> Allocate(absl::string_view name,
                                                               size_t bytes) = 0;
};

// Collective. Versions, nodes and GPUs of all ranks and rank 0's unique id go through one
// Session::Exchange; FAILED_PRECONDITION names the ranks whose versions differ, or who share a GPU.
// Collectives are recorded in the session's page. A lost session aborts the communicator. `session`
// outlives it.
absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectNccl(Session& session,
                                                              const NcclOptions& options = {});
// The same with a GPU and a library that the caller opened; `api` outlives the communicator.
absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectNccl(Session& session,
                                                              const NcclOptions& options,
                                                              const NcclApi* api,
                                                              std::unique_ptr<CommunicatorGpu> gpu);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NCCL_NCCL_COMMUNICATOR_H_

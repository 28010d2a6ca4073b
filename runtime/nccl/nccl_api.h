// The functions of NCCL that we call, loaded at run time: the library is the user's, of any version
// from 2.14.3 on. The declarations are our own, since what counts is the version of the library and
// not that of a header. Layouts are NVIDIA's binary interface.
#ifndef TRAINCTL_RUNTIME_NCCL_NCCL_API_H_
#define TRAINCTL_RUNTIME_NCCL_NCCL_API_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/stream.h"

namespace trainctl {

struct NcclCommTag;
using NcclComm = NcclCommTag*;

struct NcclUniqueId {
  char bytes[128];
};

enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};

enum NcclType : int {
  kNcclInt8 = 0,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};
enum NcclOp : int { kNcclSum = 0 };

// The fields of NCCL 2.28, of which a library reads the first `size` bytes. It takes over defaults
// where a field is undefined, and newer libraries where they have more fields.
struct NcclConfig {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  int split_share, traffic_class;
  const char* name;
  int collnet, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer, nvlink_centric;
};
static_assert(offsetof(NcclConfig, net_name) == 32 && offsetof(NcclConfig, name) == 48 &&
              sizeof(NcclConfig) == 80);

// Null: this version has no such function. All before the last block are there after LoadNccl.
struct NcclApi {
  int version = 0;   // 22809 is 2.28.9
  std::string path;  // of the library's file

  NcclResult (*get_version)(int*);
  const char* (*error_text)(NcclResult);
  const char* (*last_error)(NcclComm);
  NcclResult (*unique_id)(NcclUniqueId*);
  NcclResult (*init)(NcclComm*, int ranks, NcclUniqueId, int rank, NcclConfig*);
  NcclResult (*async_error)(NcclComm, NcclResult*);
  NcclResult (*finalize)(NcclComm);
  NcclResult (*destroy)(NcclComm);
  NcclResult (*abort)(NcclComm);
  NcclResult (*all_reduce)(const void*, void*, size_t count, NcclType, NcclOp, NcclComm,
                           CudaStream);
  NcclResult (*reduce_scatter)(const void*, void*, size_t count, NcclType, NcclOp, NcclComm,
                               CudaStream);
  NcclResult (*all_gather)(const void*, void*, size_t count, NcclType, NcclComm, CudaStream);
  NcclResult (*broadcast)(const void*, void*, size_t count, NcclType, int root, NcclComm,
                          CudaStream);

  NcclResult (*mem_alloc)(void**, size_t);  // 2.19.1, as the three below
  NcclResult (*mem_free)(void*);
  NcclResult (*enroll)(NcclComm, void*, size_t, void** registration);
  NcclResult (*withdraw)(NcclComm, void* registration);
};

// Loads `library` (a name that the loader looks for, or a path), which stays loaded, as the result
// stays. UNAVAILABLE: it is not there. FAILED_PRECONDITION: its version is not one that we can use.
absl::StatusOr<const NcclApi*> LoadNccl(const std::string& library = "libnccl.so.2");

// What follows from a version. Pure.

std::string NcclVersionText(int version);  // "2.28.9"
// FAILED_PRECONDITION, with the numbers, before 2.14.3: it cannot be polled, only waited for.
absl::Status CheckNcclVersion(int version);
// Whether a process in which a communicator was aborted may make another. A new process always may.
bool NcclRecoversInProcess(int version);
// `name` is shown in NCCL's own log where the version takes one, and outlives the call of init.
NcclConfig MakeNcclConfig(int version, bool blocking, const char* name);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NCCL_NCCL_API_H_

// What an all-reduce is measured of: a communicator with memory it works on.
#ifndef TRAINCTL_RUNTIME_BENCH_SUBJECT_H_
#define TRAINCTL_RUNTIME_BENCH_SUBJECT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/worker/session.h"

namespace trainctl {

class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string name() const = 0;  // "NCCL 2.28.9, NVIDIA H200"
  // Calls for one figure, the same on every rank.
  virtual int Calls(size_t bytes) const = 0;

  // The first floats of the message, before and after.
  virtual absl::Status Put(const std::vector<float>& values) = 0;
  virtual absl::StatusOr<std::vector<float>> Get(size_t count) = 0;
  // `calls` all-reduces of the first `bytes`, one after the other, and then their end.
  virtual absl::Status AllReduce(size_t bytes, int calls) = 0;
  virtual absl::Status Barrier() = 0;
};

// `largest`: bytes of the largest message. `session` outlives it. Collective.
absl::StatusOr<std::unique_ptr<Subject>> MakeGlooSubject(Session& session, size_t largest);
// FAILED_PRECONDITION in a build without CUDA.
absl::StatusOr<std::unique_ptr<Subject>> MakeNcclSubject(Session& session, size_t largest);

// Whether workers here can use NCCL: a GPU is there, and this build knows what to do with it.
bool HasGpu();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BENCH_SUBJECT_H_

// All-reduce between the workers of one node through memory that all of them map. Sums in rank
// order, like every other way. Nobody spins: a rank that has to wait sleeps on a futex.
#ifndef TRAINCTL_RUNTIME_WORKER_SHARED_REDUCE_H_
#define TRAINCTL_RUNTIME_WORKER_SHARED_REDUCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/fd.h"
#include "runtime/base/time.h"
#include "runtime/worker/collective_shape.h"

namespace trainctl {

class SharedReduce {
 public:
  // What a wait for `rank` ends with: OK to wait on, else the error to return.
  using Check = std::function<absl::Status(int rank, Instant deadline)>;

  // One rank makes the memory and tells the others its location, a text; they open it.
  // UNAVAILABLE: this process cannot reach that memory (another node, another container).
  static absl::StatusOr<std::unique_ptr<SharedReduce>> Create(int rank, int ranks);
  static absl::StatusOr<std::unique_ptr<SharedReduce>> Open(const std::string& location, int rank,
                                                            int ranks);
  ~SharedReduce();
  const std::string& location() const { return location_; }

  // Collective, in place; one thread at a time. T: float or double. `check` is asked before every
  // sleep and after every wake-up. INVALID_ARGUMENT: another rank's `shape` differs.
  template <typename T>
  absl::Status AllReduceSum(T* data, size_t count, const CollectiveShape& shape, Instant deadline,
                            const Check& check);

  // This rank begins a collective that goes another way. Whoever waits for it here, at the same
  // number or an earlier one, gets INVALID_ARGUMENT.
  void BeginElsewhere(const CollectiveShape& shape);

  // Any thread: lets a waiting AllReduceSum ask `check` again.
  void Wake();

 private:
  struct Control;
  struct Header;

  SharedReduce(Fd fd, void* memory, int rank, int ranks);
  Control& control(int rank) const;
  char* Terms(int rank, uint32_t piece) const;  // what a rank gave for a piece
  char* Sums(uint32_t piece) const;             // of a piece, each part written by its owner
  absl::Status WaitFor(int rank, bool sums, uint32_t piece, Instant deadline, const Check& check);
  absl::Status WaitForTerms(int rank, uint32_t piece, Instant deadline, const Check& check);
  absl::Status CheckNotElsewhere(int rank);
  void PublishTerms(uint32_t piece);
  void Publish(bool sums, uint32_t pieces);
  void RingOthers();

  template <typename T>
  absl::Status OneHop(T* data, size_t count, Instant deadline, const Check& check);
  absl::Status AwaitSums(uint32_t piece, Instant deadline, const Check& check);
  template <typename T>
  absl::Status GiveTerms(const T* data, size_t count, uint32_t piece, Instant deadline,
                         const Check& check);
  template <typename T>
  absl::Status SumPart(T* data, size_t count, uint32_t piece, Instant deadline, const Check& check);
  template <typename T>
  absl::Status TakeSums(T* data, size_t count, uint32_t piece, Instant deadline,
                        const Check& check);

  const Fd fd_;
  char* const memory_;
  const int rank_;
  const int ranks_;
  std::string location_;
  uint32_t pieces_ = 0;    // so far; wraps
  CollectiveShape shape_;  // of the collective that runs
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_SHARED_REDUCE_H_

// PURE. Which samples a step trains on, and which rank takes which of them.
#ifndef TRAINCTL_RUNTIME_WORKER_SAMPLER_H_
#define TRAINCTL_RUNTIME_WORKER_SAMPLER_H_

#include <cstdint>
#include <vector>

namespace trainctl {

// A permutation of [0, size) that is computed, not stored: value at a place in constant time and
// memory, for any size. Keyed by (seed, number).
class Permutation {
 public:
  // REQUIRES: size >= 1.
  Permutation(int64_t size, uint64_t seed, uint64_t number);
  int64_t operator[](int64_t place) const;  // REQUIRES: 0 <= place < size

 private:
  uint64_t Scramble(uint64_t value) const;

  uint64_t size_;
  int half_bits_;
  uint64_t keys_[6];
};

// Where training stands in the data. Part of a checkpoint.
struct SamplerPosition {
  int64_t pass = 0;    // passes over the data completed
  int64_t offset = 0;  // samples of the current pass used
  bool operator==(const SamplerPosition&) const = default;
};

// Every pass goes through all samples once, in the order of one permutation per (seed, pass) that
// is the same for any number of ranks. The last global batch of a pass is short if the size is no
// multiple. Not thread-safe.
class Sampler {
 public:
  // REQUIRES: size, global_batch >= 1; 0 <= position.offset < size.
  Sampler(int64_t size, int64_t global_batch, uint64_t seed, SamplerPosition position = {});

  // Samples of the global batch at the position: global_batch, or what is left of the pass.
  int64_t batch_size() const;
  // This rank's share of it: a contiguous piece of the global batch, so that the pieces in rank
  // order are the batch. May be empty when the batch has fewer samples than there are ranks.
  std::vector<int64_t> Share(int rank, int world_size) const;
  void Advance();  // to the next global batch

  const SamplerPosition& position() const { return position_; }
  int64_t batches_per_pass() const;

 private:
  int64_t size_;
  int64_t global_batch_;
  uint64_t seed_;
  SamplerPosition position_;
  Permutation permutation_;  // of the current pass
};

// [begin, end) of rank's share when `count` things are divided in rank order; shares differ by one
// at most.
struct ShareRange {
  int64_t begin = 0;
  int64_t end = 0;
};
ShareRange ShareOf(int64_t count, int rank, int world_size);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_SAMPLER_H_

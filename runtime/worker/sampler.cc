#include "runtime/worker/sampler.h"

#include <algorithm>
#include <bit>

#include "runtime/base/check.h"

namespace trainctl {
namespace {

// A bijection of 64-bit words that spreads every bit (the finaliser of SplitMix64).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t number)
    : size_(static_cast<uint64_t>(size)),
      half_bits_(static_cast<int>(std::bit_width(static_cast<uint64_t>(size) - 1) + 1) / 2) {
  CHECK(size >= 1);
  uint64_t state = Mix(seed + 0x9E3779B97F4A7C15u) ^ Mix(~number);
  for (uint64_t& key : keys_) key = Mix(state += 0x9E3779B97F4A7C15u);
}

// A balanced Feistel network: a permutation of [0, 4^half_bits), whatever its round function is.
uint64_t Permutation::Scramble(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t key : keys_) {
    const uint64_t next = left ^ (Mix(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

// Follows the larger permutation's cycle until it is back below size: again a permutation, and as
// the larger domain is less than four times the size, four turns on average at most.
int64_t Permutation::operator[](int64_t place) const {
  uint64_t value = static_cast<uint64_t>(place);
  do {
    value = Scramble(value);
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

Sampler::Sampler(int64_t size, int64_t global_batch, uint64_t seed, SamplerPosition position)
    : size_(size),
      global_batch_(global_batch),
      seed_(seed),
      position_(position),
      permutation_(size, seed, static_cast<uint64_t>(position.pass)) {
  CHECK(global_batch >= 1 && position.offset >= 0 && position.offset < size);
}

int64_t Sampler::batch_size() const { return std::min(global_batch_, size_ - position_.offset); }

int64_t Sampler::batches_per_pass() const { return (size_ + global_batch_ - 1) / global_batch_; }

std::vector<int64_t> Sampler::Share(int rank, int world_size) const {
  const ShareRange range = ShareOf(batch_size(), rank, world_size);
  std::vector<int64_t> ids;
  ids.reserve(static_cast<size_t>(range.end - range.begin));
  for (int64_t i = range.begin; i < range.end; ++i) {
    ids.push_back(permutation_[position_.offset + i]);
  }
  return ids;
}

void Sampler::Advance() {
  position_.offset += batch_size();
  if (position_.offset < size_) return;
  position_ = {position_.pass + 1, 0};
  permutation_ = Permutation(size_, seed_, static_cast<uint64_t>(position_.pass));
}

ShareRange ShareOf(int64_t count, int rank, int world_size) {
  CHECK(count >= 0 && rank >= 0 && rank < world_size);
  const int64_t whole = count / world_size, rest = count % world_size;
  const int64_t begin = rank * whole + std::min<int64_t>(rank, rest);
  return {begin, begin + whole + (rank < rest ? 1 : 0)};
}

}  // namespace trainctl

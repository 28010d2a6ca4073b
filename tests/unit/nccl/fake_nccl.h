// A library that stands in for NCCL, loaded by its path. Data is not moved: it is the calls and
// their results that count. What it does is set, and what was done to it is read, in FakeNccl.
#ifndef TRAINCTL_TESTS_UNIT_NCCL_FAKE_NCCL_H_
#define TRAINCTL_TESTS_UNIT_NCCL_FAKE_NCCL_H_

#include <atomic>

namespace trainctl {

struct FakeNccl {
  std::atomic<int> version{22809};
  // How often ncclCommGetAsyncError says that a call is in progress; -1: for ever. 0: the call
  // itself succeeds.
  std::atomic<int> looks_of_init{0};
  std::atomic<int> looks_of_call{0};
  std::atomic<int> looks_of_finalize{0};
  std::atomic<int> result{0};          // of a collective
  std::atomic<int> async_result{0};    // of ncclCommGetAsyncError once nothing is in progress
  std::atomic<int> id_result{0};       // of ncclGetUniqueId
  std::atomic<bool> hold_init{false};  // ncclCommInitRankConfig does not return
  std::atomic<bool> hold_call{false};  // nor does a collective

  std::atomic<int> inside{0};           // threads in a call about a communicator
  std::atomic<bool> overlapped{false};  // two were at once
  std::atomic<int> inits{0}, calls{0}, looks{0}, finalized{0}, destroyed{0}, aborted{0};
  std::atomic<int> enrolled{0}, withdrawn{0};
  std::atomic<int> blocking{-1};  // of the last configuration
};

extern "C" FakeNccl* FakeNcclState();

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_UNIT_NCCL_FAKE_NCCL_H_

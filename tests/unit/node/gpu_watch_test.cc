#include "runtime/node/gpu_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using ::testing::HasSubstr;

GpuUse Use(int64_t used_mib, std::vector<GpuProcess> processes) {
  return {used_mib, std::move(processes), ""};
}

TEST(JudgeFree, AProcessOfTheJobKeepsTheGpu) {
  const GpuUse use = Use(9000, {{812, "python3", "alice", "train-1", 8000}});
  const FreeVerdict ours = JudgeFree("train-1", "GPU3", use, 4);
  EXPECT_FALSE(ours.free);
  EXPECT_THAT(ours.why, HasSubstr("GPU3 is still in use by process 812 (python3) of alice"));
  EXPECT_TRUE(JudgeFree("train-2", "GPU3", use, 4).free);  // somebody else's, shared
}

TEST(JudgeFree, MemoryTellsWhereNoProcessIsShown) {
  EXPECT_FALSE(JudgeFree("j", "GPU0", Use(5000, {}), 4).free);
  const FreeVerdict back = JudgeFree("j", "GPU0", Use(100, {}), 4);
  EXPECT_TRUE(back.free);
  EXPECT_THAT(back.why, HasSubstr("by memory alone"));
  EXPECT_TRUE(JudgeFree("j", "GPU0", Use(5000, {}), -1).free);  // nothing to compare with
}

TEST(JudgeFree, MemoryTellsWhereProcessesAreOfAnotherContainer) {
  const GpuProcess unseen{7, "", "", "", 4000};
  EXPECT_FALSE(JudgeFree("j", "GPU0", Use(5000, {unseen}), 4).free);
  EXPECT_TRUE(JudgeFree("j", "GPU0", Use(5000, {unseen}), 4900).free);
}

TEST(JudgeFree, AGpuThatCannotBeAskedIsNotWaitedFor) {
  GpuUse use;
  use.problem = "it has fallen off the bus";
  EXPECT_TRUE(JudgeFree("j", "GPU0", use, 4).free);
}

}  // namespace
}  // namespace trainctl

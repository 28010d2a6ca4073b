#include "launcher/slot_loan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SlotLoan, IsReadAsItWasWritten) {
  for (const SlotLoan& loan : {SlotLoan{1, {0, 7}, "GPU-1a,GPU-2b"}, SlotLoan{3, {12}, ""},
                               SlotLoan{0, {}, std::nullopt}}) {
    const absl::StatusOr<SlotLoan> read = ParseSlotLoan(FormatSlotLoan(loan));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->local_id, loan.local_id);
    EXPECT_EQ(read->cpus, loan.cpus);
    EXPECT_EQ(read->gpus, loan.gpus);
  }
}

TEST(SlotLoan, AnythingElseIsRefused) {
  for (const char* text : {"", "1", "1\n0\n-", "1\n0\n\n", "x\n0\n-\n", "1\nx\n-\n", "1\n-1\n-\n",
                           "1\n0\n0,1\n", "1\n0\n-\n\n", "1\n99999999999\n-\n"}) {
    EXPECT_FALSE(ParseSlotLoan(text).ok()) << text;
  }
}

TEST(JoinSlots, TheFirstTaskHasWhatAllHave) {
  const auto joined = JoinSlots({{1, {2, 3}, "2,3"}, {0, {0, 1}, "0,1"}, {2, {3, 4}, "3,7"}}, 5);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_THAT(joined->cpus, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(joined->gpus, "0,1,2,3,7");
}

TEST(JoinSlots, GpusThatAllTasksSeeAreNoOnesOwn) {
  EXPECT_EQ(JoinSlots({{0, {0}, "0,1"}, {1, {0}, "0,1"}}, 2)->gpus, "0,1");
  EXPECT_EQ(JoinSlots({{0, {0}, "5"}, {1, {0}, "5"}}, 0)->gpus, "5");
}

TEST(JoinSlots, WithoutGpusNothingIsSet) {
  EXPECT_EQ(JoinSlots({{0, {0}, {}}, {1, {1}, {}}}, 2)->gpus, std::nullopt);
  EXPECT_EQ(JoinSlots({{0, {0}, ""}, {1, {1}, {}}}, 0)->gpus, "");
}

TEST(JoinSlots, TasksThatAreConfinedToTheirOwnGpusAreRefused) {
  const absl::Status refused = JoinSlots({{0, {0}, "0"}, {1, {1}, "0"}}, 2).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(), HasSubstr("see 1 of its 2 GPUs"));
  EXPECT_THAT(refused.message(), HasSubstr("--gpus-per-node"));
}

}  // namespace
}  // namespace trainctl

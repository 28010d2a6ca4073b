#include "runtime/worker/drift.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/process/worker/fake_supervisor.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

absl::Status Check(Communicator& communicator, int rank_with_flipped_bit) {
  std::vector<float> weight(1001, 0.25f), bias(7, 1.0f);
  if (communicator.rank() == rank_with_flipped_bit) {
    uint32_t bits = 0;
    std::memcpy(&bits, &bias[3], sizeof(bits));
    bits ^= 1;
    std::memcpy(&bias[3], &bits, sizeof(bits));
  }
  return CheckReplicas(communicator, {{"layers.0.weight", weight}, {"layers.0.bias", bias}},
                       trainctl::Step(40));
}

TEST(Drift, FindsAFlippedBitAndNamesRankTensorAndStep) {
  RunRanks(3, [](Session&, Communicator& communicator) {
    const absl::Status status = Check(communicator, 2);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("at step 40 tensor layers.0.bias of rank 2 differs"));
  });
}

TEST(Drift, EqualReplicasPass) {
  for (int world : {1, 2, 4}) {
    RunRanks(world, [](Session&, Communicator& communicator) {
      EXPECT_TRUE(Check(communicator, -1).ok());
    });
  }
}

}  // namespace
}  // namespace trainctl

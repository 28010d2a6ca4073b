#include "runtime/nccl/nccl_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using ::testing::HasSubstr;

std::vector<NcclPeer> Two() {
  return {{22809, "n1", "0000:3b:00.0", "id", ""}, {22809, "n2", "0000:3b:00.0", "", ""}};
}

TEST(NcclPeers, OfOneVersionOnDifferentGpusFit) { EXPECT_TRUE(CheckPeers(Two()).ok()); }

TEST(NcclPeers, OfDifferentVersionsAreNamedWithNodesAndNumbers) {
  std::vector<NcclPeer> peers = Two();
  peers[1].version = 22705;
  const absl::Status status = CheckPeers(peers);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("2.28.9 at rank 0 on n1, 2.27.5 at rank 1 on n2"));
}

TEST(NcclPeers, OnOneGpuAreNamed) {
  std::vector<NcclPeer> peers = Two();
  peers[1].node = "n1";
  EXPECT_THAT(CheckPeers(peers).message(),
              HasSubstr("ranks 0 and 1 are both on the GPU 0000:3b:00.0 of n1"));
}

TEST(NcclPeers, AllHearWhyRankZeroCouldNotBegin) {
  std::vector<NcclPeer> peers = Two();
  peers[0].error = "no network interface";
  EXPECT_THAT(CheckPeers(peers).message(), HasSubstr("rank 0 on n1: no network interface"));
}

TEST(NcclPeers, AreReadAsTheyWereWritten) {
  std::vector<NcclPeer> peers = Two();
  const absl::StatusOr<std::vector<NcclPeer>> read =
      DecodePeers({EncodePeer(peers[0]), EncodePeer(peers[1])});
  ASSERT_TRUE(read.ok());
  EXPECT_EQ((*read)[0].id, "id");
  EXPECT_EQ((*read)[1].node, "n2");
  EXPECT_THAT(DecodePeers({EncodePeer(peers[0]), "?"}).status().message(), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace trainctl

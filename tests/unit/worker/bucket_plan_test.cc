#include "runtime/worker/bucket_plan.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LinkMeasurement kLoopback = {.latency_seconds = 50e-6, .bytes_per_second = 2e9};

std::vector<int> Reverse(size_t n) {
  std::vector<int> order(n);
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

TEST(BucketPlan, FillsBucketsToTenLatenciesInReadyOrder) {
  // Two ranks: 2 GB/s, so one latency is worth 100 kB and a bucket at most 1 MB.
  const std::vector<int64_t> bytes(10, 400'000);
  const BucketPlan plan = PlanBuckets(bytes, Reverse(10), 2, kLoopback, 0);
  EXPECT_EQ(plan.cap_bytes, 1'000'000);
  EXPECT_EQ(plan.last_cap_bytes, 100'000);
  EXPECT_THAT(plan.buckets, ElementsAre(ElementsAre(9, 8), ElementsAre(7, 6), ElementsAre(5, 4),
                                        ElementsAre(3, 2), ElementsAre(1), ElementsAre(0)));
}

TEST(BucketPlan, MoreRanksMoveMoreBytesForTheSameBucket) {
  const BucketPlan two = PlanBuckets({1}, {0}, 2, kLoopback, 0);
  const BucketPlan many = PlanBuckets({1}, {0}, 100, kLoopback, 0);
  EXPECT_NEAR(static_cast<double>(many.cap_bytes), 1'000'000 * 100.0 / 198, 1);
  EXPECT_EQ(two.cap_bytes, 1'000'000);
}

TEST(BucketPlan, TheLastBucketTakesAtMostTwoPercentOfAStep) {
  const std::vector<int64_t> bytes(10, 100'000);
  // 2 % of 10 ms at 2 GB/s is 400 kB.
  const BucketPlan plan = PlanBuckets(bytes, Reverse(10), 2, kLoopback, 0.010);
  EXPECT_EQ(plan.last_cap_bytes, 400'000);
  EXPECT_THAT(plan.buckets, ElementsAre(ElementsAre(9, 8, 7, 6, 5, 4), ElementsAre(3, 2, 1, 0)));
}

TEST(BucketPlan, ATensorIsNeverSplit) {
  const BucketPlan plan = PlanBuckets({5'000'000, 200'000, 7'000'000}, {2, 1, 0}, 2, kLoopback, 0);
  EXPECT_THAT(plan.buckets, ElementsAre(ElementsAre(2), ElementsAre(1), ElementsAre(0)));
}

TEST(BucketPlan, WhatIsNotWorthAMessageTravelsWithTheNext) {
  // The mlp 784-512-256-10: weight and bias of each layer.
  const std::vector<int64_t> bytes = {1'605'632, 2048, 524'288, 1024, 10'240, 40};
  const BucketPlan plan = PlanBuckets(bytes, Reverse(6), 2, kLoopback, 0);
  EXPECT_THAT(plan.buckets, ElementsAre(ElementsAre(5, 4, 3, 2, 1), ElementsAre(0)));
  const BucketPlan slower = PlanBuckets(bytes, Reverse(6), 2, {50e-6, 0.5e9}, 0);
  EXPECT_THAT(slower.buckets, ElementsAre(ElementsAre(5, 4, 3, 2), ElementsAre(1, 0)));
}

TEST(BucketPlan, OneWorkerHasOneBucket) {
  const BucketPlan plan = PlanBuckets({5'000'000, 10, 20}, {2, 1, 0}, 1, {}, 0);
  EXPECT_THAT(plan.buckets, ElementsAre(ElementsAre(2, 1, 0)));
  EXPECT_THAT(plan.reason, HasSubstr("only one worker"));
}

TEST(BucketPlan, AModelWithoutParametersHasNoBucket) {
  EXPECT_TRUE(PlanBuckets({}, {}, 2, kLoopback, 0).buckets.empty());
}

TEST(BucketPlan, GivesItsReasonWithFigures) {
  const BucketPlan plan =
      PlanBuckets(std::vector<int64_t>(10, 400'000), Reverse(10), 2, kLoopback, 0);
  EXPECT_EQ(plan.reason,
            "6 gradient buckets of at most 977 KiB (ten times the latency of 50 us at 2.00 GB/s), "
            "the last of 391 KiB because nothing hides it");
}

TEST(BucketPlan, CountsASingleBucketInTheSingular) {
  EXPECT_THAT(PlanBuckets({10, 10}, {1, 0}, 2, kLoopback, 0).reason,
              testing::StartsWith("1 gradient bucket of"));
}

TEST(BucketPlan, SurvivesItsText) {
  BucketPlan plan = PlanBuckets(std::vector<int64_t>(10, 400'000), Reverse(10), 2, kLoopback, 0.01);
  plan.final = true;
  const absl::StatusOr<BucketPlan> read = PlanFromJson(PlanToJson(plan), 10);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->buckets, plan.buckets);
  EXPECT_EQ(read->cap_bytes, plan.cap_bytes);
  EXPECT_EQ(read->last_cap_bytes, plan.last_cap_bytes);
  EXPECT_EQ(read->link.latency_seconds, plan.link.latency_seconds);
  EXPECT_EQ(read->step_seconds, plan.step_seconds);
  EXPECT_TRUE(read->final);
  EXPECT_EQ(read->reason, plan.reason);
}

std::string Text(const std::string& buckets) {
  return R"({"version":1,"latency_seconds":0,"bytes_per_second":0,"step_seconds":0,"cap_bytes":1,)"
         R"("last_cap_bytes":1,"final":true,"reason":"","buckets":)" +
         buckets + "}";
}

TEST(BucketPlan, RefusesTextsThatAreNoPlanForThisModel) {
  EXPECT_TRUE(PlanFromJson(Text("[[0,2],[1]]"), 3).ok());
  const auto refused = [](const std::string& text) {
    const absl::Status status = PlanFromJson(text, 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(status.message());
  };
  EXPECT_THAT(refused(Text("[[0,2],[2]]")), HasSubstr("parameter 2 is in it twice"));
  EXPECT_THAT(refused(Text("[[0],[1]]")), HasSubstr("2 of the model's 3 parameters"));
  EXPECT_THAT(refused(Text("[[0,3],[1,2]]")), HasSubstr("holds 3 but the model has 3"));
  EXPECT_THAT(refused(Text("[[0,-1],[1,2]]")), HasSubstr("-1"));
  EXPECT_THAT(refused(Text("[[0,1e99],[1,2]]")), HasSubstr("bucket"));
  EXPECT_THAT(refused(Text("[[],[0,1,2]]")), HasSubstr("empty"));
  EXPECT_THAT(refused(Text("7")), HasSubstr("no list"));
  EXPECT_THAT(refused("[1"), HasSubstr("no JSON object"));
  EXPECT_THAT(refused(""), HasSubstr("no JSON object"));
  EXPECT_THAT(refused("{\"version\":2}"), HasSubstr("version"));
  EXPECT_THAT(refused("{\"version\":1}"), HasSubstr("latency_seconds"));
}

}  // namespace
}  // namespace trainctl

// A checker that never objects proves nothing: each is shown a world in which what it guards is
// made wrong on purpose, and must be the first to say so.
#include <gtest/gtest.h>

#include <string>

#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

constexpr int kMostSeeds = 40;

Options Small(uint64_t seed) {
  Options options;
  options.seed = seed;
  options.nodes = 4;
  options.slots = 2;
  options.duration = seconds(120);
  return options;
}

struct Planted {
  Mutation mutation;
  const char* checker;
  std::optional<int> max_restarts = {};
};

class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsFoundByItsChecker) {
  std::string others;
  for (uint64_t seed = 1; seed <= kMostSeeds; ++seed) {
    Options options = Small(seed);
    options.mutation = GetParam().mutation;
    options.max_restarts = GetParam().max_restarts;
    const Result result = World(options).Run();
    if (result.verdict != Verdict::kGood && result.checker == GetParam().checker) return;
    if (result.verdict != Verdict::kGood) others += result.checker + ": " + result.text + "\n";
  }
  FAIL() << MutationName(GetParam().mutation) << " was not found; instead:\n" << others;
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedFault,
    testing::Values(
        Planted{Mutation::kActBeforeDurable, "durable"},
        Planted{Mutation::kLoseSyncedTail, "epoch"},
        Planted{Mutation::kLeaseNeverEnds, "old workers"},
        Planted{Mutation::kStartBesideOld, "slot"}, Planted{Mutation::kSecondStopKills, "twice"},
        Planted{Mutation::kHearOldTerms, "twice"}, Planted{Mutation::kNeverReap, "reaped"},
        Planted{Mutation::kSameRanks, "ranks"}, Planted{Mutation::kMoveRanks, "ranks"},
        Planted{Mutation::kInventCheckpoint, "recovery point"},
        Planted{Mutation::kHideCheckpoints, "recovery point"},
        Planted{Mutation::kDeleteTooMuch, "recovery point"},
        Planted{Mutation::kPublishUngranted, "publish"},
        Planted{Mutation::kForgetFailures, "budget", 2}, Planted{Mutation::kForgetEnd, "end"},
        Planted{Mutation::kForgetEpoch, "replay"}, Planted{Mutation::kForgetNobody, "memory"},
        Planted{Mutation::kSayNothing, "explain"}, Planted{Mutation::kNeverDialAgain, "liveness"}),
    [](const testing::TestParamInfo<Planted>& tested) {
      std::string name = MutationName(tested.param.mutation);
      std::erase(name, '-');
      return name;
    });

}  // namespace
}  // namespace trainctl::sim

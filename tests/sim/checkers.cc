#include "tests/sim/checkers.h"

#include "tests/sim/world.h"

namespace trainctl::sim {

void Checker::Object(std::string text) const { world_->Violation(name_, std::move(text)); }

Checkers::Checkers(World* world) {
  Add(MakeSlotChecker(world));
  Add(MakeOldWorkersChecker(world));
  Add(MakeReapedChecker(world));
  Add(MakeTwiceChecker(world));
  Add(MakeDurableChecker(world), true);
  Add(MakeEpochChecker(world));
  Add(MakeRanksChecker(world));
  Add(MakeBudgetChecker(world));
  Add(MakeEndChecker(world));
  Add(MakeExplainChecker(world));
  Add(MakeMemoryChecker(world));
  Add(MakeReplayChecker(world), true);
  Add(MakeRecoveryPointChecker(world));
  Add(MakePublishChecker(world));
}

}  // namespace trainctl::sim

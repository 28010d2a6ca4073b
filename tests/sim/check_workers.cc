// Checkers of worker processes: where they run, beside whom, and that they end.
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/checkers.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

std::string Worker(int node, Epoch epoch, int rank) {
  return absl::StrCat("rank ", rank, " of epoch ", epoch.value, " on n", node + 1);
}

// No slot ever runs workers of two epochs, and no rank of an epoch runs twice.
class SlotChecker : public Checker {
 public:
  explicit SlotChecker(World* world) : Checker(world, "slot") {}

  void OnSpawned(int node, int slot, Epoch epoch, int rank, int pid) override {
    const auto [at, free] = slots_.try_emplace({node, slot}, Busy{epoch, rank, pid});
    if (!free) {
      Object(absl::StrCat(Worker(node, epoch, rank), " was started in slot ", slot, " beside ",
                          Worker(node, at->second.epoch, at->second.rank)));
    }
    const auto [other, first] = ranks_.try_emplace({epoch, rank}, node);
    if (!first) {
      Object(absl::StrCat(Worker(node, epoch, rank), " was started while it runs on n",
                          other->second + 1));
    }
  }
  void OnEnded(int node, int slot, Epoch epoch, int rank, int pid) override {
    const auto at = slots_.find({node, slot});
    if (at != slots_.end() && at->second.pid == pid) slots_.erase(at);
    ranks_.erase({epoch, rank});
  }

 private:
  struct Busy {
    Epoch epoch;
    int rank;
    int pid;
  };
  std::map<std::pair<int, int>, Busy> slots_;
  std::map<std::pair<Epoch, int>, int> ranks_;
};

// When an epoch is formed, no worker of an earlier one is left, except where nobody could have
// ended it; and what is left or comes late is gone within a bound after its epoch was condemned.
class OldWorkersChecker : public Checker {
 public:
  explicit OldWorkersChecker(World* world) : Checker(world, "old workers") {}

  void OnDurable(const std::vector<JournalRecord>& records) override {
    for (const JournalRecord& record : records) {
      if (const auto* formed = std::get_if<EpochFormed>(&record)) OnFormed(*formed);
      if (const auto* condemned = std::get_if<EpochCondemned>(&record)) {
        over_.try_emplace(condemned->epoch, world().timeline().now());
      }
      if (const auto* replaced = std::get_if<EpochReplaced>(&record)) {
        over_.try_emplace(replaced->epoch, world().timeline().now());
      }
    }
  }

  void OnCoordinatorStarted(Term, const std::vector<JournalRecord>&) override { BeginAnew(); }

  void OnLook() override {
    if (!world().node(0).machine().runs()) BeginAnew();  // nobody can act
    // Only the newest epoch of living workers may be one that is not over.
    if (spawned_.empty() || !over_.contains(spawned_.begin()->first.first)) return;
    const JobSpec& spec = world().spec();
    // Patience, the last lease granted within it, its margin, and a second to kill and to tell.
    const Duration bound = spec.grace + 2 * spec.lease + seconds(2);
    for (const auto& node : world().nodes()) {
      if (node->workers_alive() == 0 || world().excused(node->index())) continue;
      for (const auto& [epoch, rank] : node->LivingWorkers()) {
        const auto over = over_.find(epoch);
        if (over == over_.end()) continue;
        const Duration since = world().timeline().now() - over->second;
        const Duration lives = world().timeline().now() - spawned_[{epoch, rank}];
        if (since > bound && lives > spec.lease + seconds(1)) {
          return Object(absl::StrCat(Worker(node->index(), epoch, rank), " still runs ",
                                     ToSeconds(since), " s after its epoch was condemned"));
        }
      }
    }
  }

  void OnSpawned(int, int, Epoch epoch, int rank, int) override {
    spawned_[{epoch, rank}] = world().timeline().now();
  }
  void OnEnded(int, int, Epoch epoch, int rank, int) override { spawned_.erase({epoch, rank}); }

 private:
  void OnFormed(const EpochFormed& formed) {
    for (const auto& node : world().nodes()) {
      if (node->workers_alive() == 0 || world().excused(node->index())) continue;
      for (const auto& [epoch, rank] : node->LivingWorkers()) {
        if (epoch < formed.epoch) {
          return Object(absl::StrCat("epoch ", formed.epoch.value, " was formed while ",
                                     Worker(node->index(), epoch, rank), " runs"));
        }
      }
    }
  }

  // The coordinator begins its patience anew.
  void BeginAnew() {
    for (auto& [epoch, since] : over_) since = world().timeline().now();
  }

  std::map<Epoch, Instant> over_;  // since when
  std::map<std::pair<Epoch, int>, Instant> spawned_;
};

// Each worker that was started is reaped, once.
class ReapedChecker : public Checker {
 public:
  explicit ReapedChecker(World* world) : Checker(world, "reaped") {}

  void OnSpawned(int node, int, Epoch, int, int pid) override { left_.insert({node, pid}); }
  void OnReaped(int node, int pid) override {
    if (left_.erase({node, pid}) == 0) {
      Object(absl::StrCat("pid ", pid, " of n", node + 1, " was reaped twice"));
    }
  }
  void OnEnd() override {
    for (const auto& [node, pid] : left_) {
      if (!world().node(node).Knows(pid)) {
        return Object(absl::StrCat("pid ", pid, " of n", node + 1, " was never reaped"));
      }
    }
  }

 private:
  std::set<std::pair<int, int>> left_;
};

// An order that comes twice has the effect of one, and one of an older term has none.
class TwiceChecker : public Checker {
 public:
  explicit TwiceChecker(World* world) : Checker(world, "twice") {}

  void OnOrderRepeated(int node, const std::string& once, const std::string& twice) override {
    if (once == twice) return;
    Object(absl::StrCat("an order that came twice, or of an older term, to n", node + 1,
                        " changed ", once, " into ", twice));
  }
};

}  // namespace

std::unique_ptr<Checker> MakeSlotChecker(World* world) {
  return std::make_unique<SlotChecker>(world);
}
std::unique_ptr<Checker> MakeOldWorkersChecker(World* world) {
  return std::make_unique<OldWorkersChecker>(world);
}
std::unique_ptr<Checker> MakeReapedChecker(World* world) {
  return std::make_unique<ReapedChecker>(world);
}
std::unique_ptr<Checker> MakeTwiceChecker(World* world) {
  return std::make_unique<TwiceChecker>(world);
}

}  // namespace trainctl::sim

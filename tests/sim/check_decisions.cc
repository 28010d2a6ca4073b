// Checkers of what the coordinator decides, as its records and orders show it.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/journal_format.h"
#include "tests/sim/checkers.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

// Nothing is done before the records that go with it are durable.
class DurableChecker : public Checker {
 public:
  explicit DurableChecker(World* world) : Checker(world, "durable") {}

  void OnDecided(const Batch& batch, const Coordinator&, Instant) override {
    if (batch.persist.empty()) return;
    needed_ = world().disk().bytes().size() + JournalFrames(batch.persist).size();
  }
  void OnCoordinatorStarted(Term, const std::vector<JournalRecord>&) override { needed_ = 0; }
  void OnPerform(const Action& action) override {
    if (world().disk().synced() < needed_) {
      Object(absl::StrCat("action ", action.index(), " was performed when ",
                          world().disk().synced(), " bytes of ", needed_, " were durable"));
    }
  }

 private:
  size_t needed_ = 0;
};

// Terms and epochs only rise, epochs one by one; orders are about the newest epoch.
class EpochChecker : public Checker {
 public:
  explicit EpochChecker(World* world) : Checker(world, "epoch") {}

  void OnCoordinatorStarted(Term term, const std::vector<JournalRecord>&) override {
    if (term < used_ || term < Term(1)) {
      Object(absl::StrCat("term ", term.value, " began after term ", used_.value));
    }
    if (term == used_) Object(absl::StrCat("term ", term.value, " was used before"));
    term_ = term;
  }
  void OnDurable(const std::vector<JournalRecord>& records) override {
    for (const JournalRecord& record : records) {
      const auto* formed = std::get_if<EpochFormed>(&record);
      if (!formed) continue;
      if (formed->epoch != newest_.Next()) {
        Object(
            absl::StrCat("epoch ", formed->epoch.value, " was formed after epoch ", newest_.value));
      }
      newest_ = formed->epoch;
    }
  }
  void OnPerform(const Action& action) override {
    if (world().SentToNodes(action)) used_ = term_;
    const auto* start = std::get_if<StartWorkers>(&action);
    if (start && start->epoch != newest_) {
      Object(absl::StrCat(start->node, " was told to start epoch ", start->epoch.value,
                          ", and the newest is ", newest_.value));
    }
  }

 private:
  Term term_;
  Term used_;  // the newest that a node may have heard of
  Epoch newest_{-1};
};

// The ranks of an epoch are a bijection onto 0..n-1, told to the nodes as they were recorded; nodes
// that stay in a job of unchanged shape keep theirs.
class RanksChecker : public Checker {
 public:
  explicit RanksChecker(World* world) : Checker(world, "ranks") {}

  void OnDurable(const std::vector<JournalRecord>& records) override {
    for (const JournalRecord& record : records) {
      const auto* formed = std::get_if<EpochFormed>(&record);
      if (!formed) continue;
      CheckShares(*formed);
      CheckStable(*formed);
      newest_ = *formed;
      share_of_.clear();
      for (const NodeShare& share : newest_.nodes) share_of_[share.node] = &share;
    }
  }
  void OnPerform(const Action& action) override {
    const auto* start = std::get_if<StartWorkers>(&action);
    if (!start) return;
    const auto found = share_of_.find(start->node);
    const NodeShare* share = found == share_of_.end() ? nullptr : found->second;
    if (share == nullptr) {
      return Object(absl::StrCat(start->node, " was told to start and is not in the epoch"));
    }
    bool right = start->world_size == newest_.world_size() &&
                 start->workers.size() == static_cast<size_t>(share->workers);
    for (size_t i = 0; right && i < start->workers.size(); ++i) {
      right = start->workers[i].rank == share->first_rank + static_cast<int>(i) &&
              start->workers[i].local_rank == static_cast<int>(i);
    }
    if (!right) {
      Object(absl::StrCat(start->node, " was told other ranks than those recorded for epoch ",
                          newest_.epoch.value));
    }
  }

 private:
  void CheckShares(const EpochFormed& formed) {
    int next = 0;
    std::set<std::string> names;
    for (const NodeShare& share : formed.nodes) {
      if (share.first_rank != next || share.workers < 1 || !names.insert(share.node).second) {
        return Object(absl::StrCat("epoch ", formed.epoch.value, " gives ", share.node,
                                   " the ranks from ", share.first_rank, "; ", next,
                                   " is the next that is free"));
      }
      next += share.workers;
    }
    const int size = static_cast<int>(formed.nodes.size());
    if (size < world().spec().min_nodes || size > world().spec().max_nodes) {
      Object(absl::StrCat("epoch ", formed.epoch.value, " has ", size, " nodes"));
    }
  }
  void CheckStable(const EpochFormed& formed) {
    if (newest_.nodes.size() != formed.nodes.size()) return;
    // Two of them change places where the first one cannot be reached by the others.
    if (absl::StrContains(formed.reason, "has rank 0, because")) return;
    std::map<std::string, int> before;
    for (const NodeShare& share : newest_.nodes) before[share.node] = share.first_rank;
    for (const NodeShare& share : formed.nodes) {
      const auto old = before.find(share.node);
      if (old == before.end() || old->second == share.first_rank) continue;
      Object(absl::StrCat(share.node, " had the ranks from ", old->second, " and has those from ",
                          share.first_rank, " in epoch ", formed.epoch.value));
    }
  }

  EpochFormed newest_;
  absl::flat_hash_map<std::string, const NodeShare*> share_of_;  // in newest_
};

// Restarts stay within what was asked for, in all terms together.
class BudgetChecker : public Checker {
 public:
  explicit BudgetChecker(World* world) : Checker(world, "budget") {}

  void OnDurable(const std::vector<JournalRecord>& records) override {
    for (const JournalRecord& record : records) {
      if (const auto* condemned = std::get_if<EpochCondemned>(&record)) {
        failure_ = condemned->failure.failure_class;
        failed_ = true;
      }
      if (std::holds_alternative<EpochFormed>(record) && std::exchange(failed_, false)) Restarted();
    }
  }

 private:
  void Restarted() {
    const JobSpec& spec = world().spec();
    const bool spends =
        failure_ == FailureClass::kWorker || failure_ == FailureClass::kOutOfMemory ||
        failure_ == FailureClass::kGpuOutOfMemory || failure_ == FailureClass::kHang;
    if (spends && ++spent_ > spec.max_restarts) {
      Object(absl::StrCat("restart ", spent_, " of ", spec.max_restarts, " for failures of the ",
                          "script"));
    }
    if (failure_ == FailureClass::kUserError) Object("a user's error was tried again");
    // The coordinator counts from when an epoch is over; half a window is safe from the difference.
    times_.push_back(world().timeline().now());
    const auto recent = std::count_if(times_.begin(), times_.end(), [&](Instant at) {
      return at + spec.restart_window / 2 > world().timeline().now();
    });
    if (recent > spec.window_restarts) {
      Object(absl::StrCat(recent, " restarts within half a window, and ", spec.window_restarts,
                          " are allowed in one"));
    }
  }

  FailureClass failure_ = FailureClass::kWorker;
  bool failed_ = false;
  int spent_ = 0;
  std::vector<Instant> times_;
};

// A job that is over is never run again, and its end does not change.
class EndChecker : public Checker {
 public:
  explicit EndChecker(World* world) : Checker(world, "end") {}

  void OnDurable(const std::vector<JournalRecord>& records) override {
    for (const JournalRecord& record : records) {
      if (over_ && !std::holds_alternative<TermStarted>(record)) {
        Object(absl::StrCat("record ", record.index(), " was written after the end"));
      }
      over_ = over_ || std::holds_alternative<Finished>(record);
    }
  }
  void OnPerform(const Action& action) override {
    if (over_ && std::holds_alternative<StartWorkers>(action)) {
      Object("workers were started after the end");
    }
  }

 private:
  bool over_ = false;
};

// People are always told what is waited for.
class ExplainChecker : public Checker {
 public:
  explicit ExplainChecker(World* world) : Checker(world, "explain") {}

  void OnLook() override {
    const Driver& driver = world().driver();
    if (!driver.coordinator()) return;
    // It names nodes in order, which a thousand make slow.
    if (world().nodes().size() > 256 && ++looks_ % 32 != 0) return;
    std::string text = driver.coordinator()->Explain(world().node(0).machine().Now());
    if (world().broken(Mutation::kSayNothing)) text.clear();
    if (text.empty()) Object("nothing is said of what the job waits for");
    if (text.find("because ,") != std::string::npos || text.ends_with("because ")) {
      Object(absl::StrCat("a reason is missing: ", text));
    }
  }

 private:
  int looks_ = 0;
};

// What the coordinator remembers of nodes does not grow with all that ever came.
class MemoryChecker : public Checker {
 public:
  explicit MemoryChecker(World* world) : Checker(world, "memory") {}

  void OnLook() override {
    if (!world().driver().coordinator() || ++looks_ % 16 != 0) return;
    size_t known =
        world().driver().coordinator()->View(world().node(0).machine().Now()).nodes.size();
    if (world().broken(Mutation::kForgetNobody)) known += world().faults().strangers();
    const size_t bound = 2 * world().nodes().size() + 64;
    if (known > bound) {
      Object(absl::StrCat(known, " nodes are remembered; there are ", world().nodes().size()));
    }
  }

 private:
  int looks_ = 0;
};

// A coordinator that is replayed from the journal is where the one is that wrote it.
class ReplayChecker : public Checker {
 public:
  explicit ReplayChecker(World* world) : Checker(world, "replay") {}

  void OnDurable(const std::vector<JournalRecord>&) override { due_ = true; }
  void OnPerformed(const Coordinator& survivor, Instant now) override {
    if (!std::exchange(due_, false)) return;
    // A thousand nodes cost more than they show.
    if (world().nodes().size() > 256 && ++skipped_ % 16 != 0) return;
    std::vector<JournalRecord> records = world().driver().records();
    if (world().broken(Mutation::kForgetEpoch)) {
      std::erase_if(records, [&](const JournalRecord& record) {
        const auto* formed = std::get_if<EpochFormed>(&record);
        return formed && formed->epoch == survivor.epoch();
      });
    }
    const Coordinator heir = Coordinator::Replay(world().spec(), records);
    const JobView a = survivor.View(now);
    const JobView b = heir.View(now);
    std::string wrong;
    if (a.epoch != b.epoch) absl::StrAppend(&wrong, " epoch ", b.epoch.value);
    if (a.world_size != b.world_size) absl::StrAppend(&wrong, " world ", b.world_size);
    if (!PhaseFits(a.phase, b.phase)) absl::StrAppend(&wrong, " phase ", JobPhaseName(b.phase));
    const bool same_ranks =
        std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(),
                   [](const RankPlace& x, const RankPlace& y) {
                     return x.rank == y.rank && x.node == y.node && x.local_rank == y.local_rank;
                   });
    if (!same_ranks) wrong += " other ranks";
    // What the folder held besides, only the survivor has seen.
    const bool damage = std::any_of(records.begin(), records.end(), [](const JournalRecord& r) {
      const auto* dropped = std::get_if<CheckpointDropped>(&r);
      return dropped && dropped->damaged;
    });
    const bool trains = a.phase == JobPhase::kStarting || a.phase == JobPhase::kRunning;
    if (trains && !damage && a.recovery_point != b.recovery_point) {
      absl::StrAppend(&wrong, " recovery point ", b.recovery_point.value, " for ",
                      a.recovery_point.value);
    }
    if (!wrong.empty()) {
      Object(absl::StrCat("replayed while epoch ", a.epoch.value, " is ", JobPhaseName(a.phase),
                          ":", wrong));
    }
  }

 private:
  static bool PhaseFits(JobPhase survivor, JobPhase heir) {
    switch (survivor) {
      case JobPhase::kForming:
        return heir == JobPhase::kForming || heir == JobPhase::kDraining;
      case JobPhase::kStarting:
      case JobPhase::kRunning:
        return heir == JobPhase::kStarting;
      case JobPhase::kDraining:
        return heir == JobPhase::kDraining;
      case JobPhase::kFinished:
        return heir == JobPhase::kFinished;
    }
    return false;
  }

  bool due_ = false;
  int skipped_ = 0;
};

}  // namespace

std::unique_ptr<Checker> MakeDurableChecker(World* world) {
  return std::make_unique<DurableChecker>(world);
}
std::unique_ptr<Checker> MakeEpochChecker(World* world) {
  return std::make_unique<EpochChecker>(world);
}
std::unique_ptr<Checker> MakeRanksChecker(World* world) {
  return std::make_unique<RanksChecker>(world);
}
std::unique_ptr<Checker> MakeBudgetChecker(World* world) {
  return std::make_unique<BudgetChecker>(world);
}
std::unique_ptr<Checker> MakeEndChecker(World* world) {
  return std::make_unique<EndChecker>(world);
}
std::unique_ptr<Checker> MakeExplainChecker(World* world) {
  return std::make_unique<ExplainChecker>(world);
}
std::unique_ptr<Checker> MakeMemoryChecker(World* world) {
  return std::make_unique<MemoryChecker>(world);
}
std::unique_ptr<Checker> MakeReplayChecker(World* world) {
  return std::make_unique<ReplayChecker>(world);
}

}  // namespace trainctl::sim

// Checkers of checkpoints: who publishes, what is kept, and where an epoch begins.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/checkers.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

// An epoch begins at a published checkpoint, the newest that is not damaged; what is committed and
// kept is never lost, and the step from which epochs begin never goes back.
class RecoveryPointChecker : public Checker {
 public:
  explicit RecoveryPointChecker(World* world) : Checker(world, "recovery point") {}

  void OnDurable(const std::vector<JournalRecord>& records) override {
    for (const JournalRecord& record : records) {
      if (const auto* formed = std::get_if<EpochFormed>(&record)) OnFormed(*formed);
      if (const auto* committed = std::get_if<CheckpointCommitted>(&record)) {
        committed_.insert(committed->step);
      }
      if (const auto* dropped = std::get_if<CheckpointDropped>(&record)) {
        committed_.erase(dropped->step);
      }
    }
  }
  void OnDamaged(Step step) override { damaged_.insert(step); }
  void OnPublished(Step step, Epoch, Term, int) override { damaged_.erase(step); }

  void OnTrainingBegan(Epoch epoch, Step told, Step resumed) override {
    if (resumed < Step(0)) return;
    const auto& published = world().folder().published();
    const auto found = published.find(resumed);
    if (found == published.end()) {
      Object(absl::StrCat("epoch ", epoch.value, " was told to begin at step ", told.value,
                          " and step ", resumed.value, " is not in the folder"));
    }
  }

  void OnDeleted(Step step) override {
    committed_.erase(step);
    const auto& published = world().folder().published();
    if (published.find(step) == published.end() || damaged_.contains(step)) return;
    const auto newer = std::distance(published.upper_bound(step), published.end());
    if (newer < world().spec().checkpoint_keep) {
      Object(absl::StrCat("step ", step.value, " was deleted, and ", newer, " newer are there; ",
                          world().spec().checkpoint_keep, " are to be kept"));
    }
  }

 private:
  void OnFormed(const EpochFormed& formed) {
    if (!world().saves()) return;
    const auto better = std::find_if(committed_.rbegin(), committed_.rend(),
                                     [this](Step step) { return !damaged_.contains(step); });
    if (better != committed_.rend() && formed.resume_step < *better) {
      Object(absl::StrCat("epoch ", formed.epoch.value, " begins at step ",
                          formed.resume_step.value, ", and step ", better->value,
                          " was committed"));
    }
    const auto& published = world().folder().published();
    if (formed.resume_step >= Step(0) && published.find(formed.resume_step) == published.end()) {
      Object(absl::StrCat("epoch ", formed.epoch.value, " begins at step ",
                          formed.resume_step.value, ", which is not in the folder"));
    }
  }

  std::set<Step> committed_;
  std::set<Step> damaged_;  // since they were published last
};

// A checkpoint is published under a grant that is in the journal, given once, by the epoch and term
// to which it was given; and not when a newer epoch exists, unless its machine stood still.
class PublishChecker : public Checker {
 public:
  explicit PublishChecker(World* world) : Checker(world, "publish") {}

  void OnCoordinatorStarted(Term term, const std::vector<JournalRecord>&) override { term_ = term; }
  void OnDurable(const std::vector<JournalRecord>& records) override {
    for (const JournalRecord& record : records) {
      if (const auto* formed = std::get_if<EpochFormed>(&record)) newest_ = formed->epoch;
      const auto* granted = std::get_if<CommitGranted>(&record);
      if (!granted) continue;
      terms_[{granted->epoch, granted->step}].insert(term_);
      if (granted->epoch != newest_) {
        Object(absl::StrCat("epoch ", granted->epoch.value, " was granted step ",
                            granted->step.value, " when epoch ", newest_.value, " was formed"));
      }
    }
  }
  void OnPublished(Step step, Epoch epoch, Term term, int node) override {
    const auto granted = terms_.find({epoch, step});
    if (granted == terms_.end() || !granted->second.contains(term)) {
      return Object(absl::StrCat("epoch ", epoch.value, " published step ", step.value, " in term ",
                                 term.value, " without a grant"));
    }
    if (epoch < newest_ && !world().excused(node)) {
      Object(absl::StrCat("epoch ", epoch.value, " published step ", step.value, " when epoch ",
                          newest_.value, " was formed"));
    }
  }

 private:
  Term term_;
  Epoch newest_{-1};
  std::map<std::pair<Epoch, Step>, std::set<Term>> terms_;
};

}  // namespace

std::unique_ptr<Checker> MakeRecoveryPointChecker(World* world) {
  return std::make_unique<RecoveryPointChecker>(world);
}
std::unique_ptr<Checker> MakePublishChecker(World* world) {
  return std::make_unique<PublishChecker>(world);
}

}  // namespace trainctl::sim

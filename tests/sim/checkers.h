// What must hold whatever goes wrong, judged by what is seen from outside: processes that run,
// records that are durable, orders that are given, files that appear. None of it asks the code
// under test whether it is right.
#ifndef TRAINCTL_TESTS_SIM_CHECKERS_H_
#define TRAINCTL_TESTS_SIM_CHECKERS_H_

#include <memory>
#include <string>
#include <vector>

#include "launcher/coordinator/action.h"
#include "launcher/coordinator/coordinator.h"
#include "launcher/coordinator/journal_record.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

namespace trainctl::sim {

class World;

class Checker {
 public:
  Checker(World* world, const char* name) : world_(world), name_(name) {}
  virtual ~Checker() = default;

  // ---- The coordinator. `now` is its own clock.
  virtual void OnCoordinatorStarted(Term, const std::vector<JournalRecord>&) {}
  virtual void OnDecided(const Batch&, const Coordinator&, Instant) {}
  virtual void OnDurable(const std::vector<JournalRecord>&) {}
  virtual void OnPerform(const Action&) {}
  virtual void OnPerformed(const Coordinator&, Instant) {}
  // ---- Processes of workers
  virtual void OnSpawned(int, int, Epoch, int, int) {}  // node, slot, epoch, rank, pid
  virtual void OnEnded(int, int, Epoch, int, int) {}    // the same
  virtual void OnReaped(int, int) {}                    // node, pid
  // A shim before and after an order that it had read before, or of an older term.
  virtual void OnOrderRepeated(int, const std::string&, const std::string&) {}
  // ---- Checkpoints
  virtual void OnTrainingBegan(Epoch, Step, Step) {}   // epoch, told to resume, resumed
  virtual void OnPublished(Step, Epoch, Term, int) {}  // ..., node
  virtual void OnDeleted(Step) {}
  virtual void OnDamaged(Step) {}
  // ---- Time
  virtual void OnLook() {}  // now and then
  virtual void OnEnd() {}   // of a run that was given the time to settle

 protected:
  void Object(std::string text) const;
  World& world() const { return *world_; }

 private:
  World* world_;
  const char* name_;
};

// All of them. Every call goes to each.
class Checkers {
 public:
  explicit Checkers(World* world);

  template <typename... Params, typename... Args>
  void Tell(void (Checker::*what)(Params...), const Args&... args) {
    for (const auto& checker : all_) (checker.get()->*what)(args...);
  }
  void OnCoordinatorStarted(Term term, const std::vector<JournalRecord>& records) {
    Tell(&Checker::OnCoordinatorStarted, term, records);
  }
  void OnDecided(const Batch& batch, const Coordinator& coordinator, Instant now) {
    for (Checker* checker : deciding_) checker->OnDecided(batch, coordinator, now);
  }
  void OnDurable(const std::vector<JournalRecord>& records) { Tell(&Checker::OnDurable, records); }
  void OnPerform(const Action& action) {
    // Most of all that is done, and nobody's business.
    if (!std::holds_alternative<AnswerLease>(action)) Tell(&Checker::OnPerform, action);
  }
  void OnPerformed(const Coordinator& coordinator, Instant now) {
    for (Checker* checker : deciding_) checker->OnPerformed(coordinator, now);
  }
  void OnSpawned(int node, int slot, Epoch epoch, int rank, int pid) {
    Tell(&Checker::OnSpawned, node, slot, epoch, rank, pid);
  }
  void OnEnded(int node, int slot, Epoch epoch, int rank, int pid) {
    Tell(&Checker::OnEnded, node, slot, epoch, rank, pid);
  }
  void OnReaped(int node, int pid) { Tell(&Checker::OnReaped, node, pid); }
  void OnOrderRepeated(int node, const std::string& once, const std::string& twice) {
    Tell(&Checker::OnOrderRepeated, node, once, twice);
  }
  void OnTrainingBegan(Epoch epoch, Step told, Step resumed) {
    Tell(&Checker::OnTrainingBegan, epoch, told, resumed);
  }
  void OnPublished(Step step, Epoch epoch, Term term, int node) {
    Tell(&Checker::OnPublished, step, epoch, term, node);
  }
  void OnDeleted(Step step) { Tell(&Checker::OnDeleted, step); }
  void OnDamaged(Step step) { Tell(&Checker::OnDamaged, step); }
  void OnLook() { Tell(&Checker::OnLook); }
  void OnEnd() { Tell(&Checker::OnEnd); }

 private:
  void Add(std::unique_ptr<Checker> checker, bool deciding = false) {
    if (deciding) deciding_.push_back(checker.get());
    all_.push_back(std::move(checker));
  }

  std::vector<std::unique_ptr<Checker>> all_;
  std::vector<Checker*> deciding_;  // those who look at every batch
};

// In check_workers.cc, check_decisions.cc and check_checkpoints.cc.
std::unique_ptr<Checker> MakeSlotChecker(World* world);
std::unique_ptr<Checker> MakeOldWorkersChecker(World* world);
std::unique_ptr<Checker> MakeReapedChecker(World* world);
std::unique_ptr<Checker> MakeTwiceChecker(World* world);
std::unique_ptr<Checker> MakeDurableChecker(World* world);
std::unique_ptr<Checker> MakeEpochChecker(World* world);
std::unique_ptr<Checker> MakeRanksChecker(World* world);
std::unique_ptr<Checker> MakeBudgetChecker(World* world);
std::unique_ptr<Checker> MakeEndChecker(World* world);
std::unique_ptr<Checker> MakeExplainChecker(World* world);
std::unique_ptr<Checker> MakeMemoryChecker(World* world);
std::unique_ptr<Checker> MakeReplayChecker(World* world);
std::unique_ptr<Checker> MakeRecoveryPointChecker(World* world);
std::unique_ptr<Checker> MakePublishChecker(World* world);

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_CHECKERS_H_

// What goes wrong, and when: drawn from the seed before the job begins.
#ifndef TRAINCTL_TESTS_SIM_FAULTS_H_
#define TRAINCTL_TESTS_SIM_FAULTS_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/time.h"
#include "tests/sim/options.h"
#include "tests/sim/random.h"

namespace trainctl::sim {

class Node;
class World;

class Faults {
 public:
  Faults(World* world, Random random);

  void Begin();
  void Heal();  // all but what the job can do without
  void Prepare(const Strike& strike);
  void OnPhase(JobPhase phase);  // the job is in it
  // Which faults are possible in this run, and how often they come.
  std::string Plan() const;
  size_t happened() const { return happened_; }
  size_t strangers() const { return strangers_; }

  // ---- Asked where they would strike
  bool ForkFails() { return Strikes(fork_fails_); }
  int ExecError();
  bool WorkerIsDeaf() { return Strikes(deaf_); }
  bool OrderComesTwice() { return Strikes(twice_); }
  bool ShardFails() { return Strikes(shard_fails_); }
  bool DiesHere();
  Duration SyncTime();

 private:
  struct Kind {
    const char* name;
    Duration spacing;  // between two of them, on average
    std::function<void()> strike;
  };
  bool Strikes(double probability) { return on_ && probability > 0 && random_.Chance(probability); }
  void Add(const char* name, Duration least, Duration most, std::function<void()> strike);
  void AddWorkerFaults();
  void AddProcessFaults();
  void AddLinkFaults();
  void AddMachineFaults();
  void AddDiskFaults();
  void AddPeople();
  void Arm(size_t kind);
  // A fault of `node` that ends by itself, or when all do.
  void Later(Duration low, Duration high, std::function<void()> task);
  int AnyNode();
  int AnyButHead();
  std::vector<int> Neighbours();
  void EndSomeWorker();
  void StrikeNode(int node);
  void Stranger();
  void KillHalfAShim(Node* node);

  World* world_;
  Random random_;
  bool on_ = false;
  std::vector<Kind> kinds_;
  size_t happened_ = 0;
  size_t strangers_ = 0;
  double fork_fails_ = 0;
  double exec_fails_ = 0;
  double deaf_ = 0;
  double twice_ = 0;
  double shard_fails_ = 0;
  double slow_sync_ = 0;
  std::optional<Strike> strike_;
  Strike::Kind kind_ = Strike::Kind::kPower;
  int boundaries_left_ = 0;  // until the coordinator dies; 0: it does not
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_FAULTS_H_

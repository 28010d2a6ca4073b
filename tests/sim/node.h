// A machine of the job: its daemon, its shims and the worker processes that its kernel knows.
#ifndef TRAINCTL_TESTS_SIM_NODE_H_
#define TRAINCTL_TESTS_SIM_NODE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/coordinator/event.h"
#include "runtime/base/ids.h"
#include "runtime/local/frames.h"
#include "tests/sim/daemon.h"
#include "tests/sim/process.h"
#include "tests/sim/shim.h"

namespace trainctl::sim {

class World;

// What the kernel tells whoever reaps a process.
struct OsExit {
  bool signaled = false;
  int code = 0;
  bool by_us = false;  // the signal that ended it was the shim's
  int exec_error = 0;
  std::string says;  // the end of its output
};

class Node {
 public:
  Node(World* world, int index);

  int index() const { return index_; }
  const std::string& name() const { return name_; }
  Machine& machine() { return machine_; }
  const Machine& machine() const { return machine_; }
  Daemon& daemon() { return daemon_; }
  Shim* listening_shim();  // one that accepts connections; nullptr: none
  Shim* StartShim();
  bool any_shim_alive() const;
  std::vector<NodeAddress> addresses() const;

  // ---- By a shim, about its own workers
  int Fork(Shim* shim, Epoch epoch, int rank, int slot);  // the pid; -1: no process could be made
  void Terminate(int pid);
  void KillWorker(int pid);
  std::optional<OsExit> Reap(int pid);  // nullopt: it still runs
  bool ReapForDying(int pid);           // the same, by a shim that only ends
  void OnGranted(int64_t epoch, const frame::CommitGranted& granted);
  void OnPageRequest(int64_t epoch, bool checkpoint, bool stop);
  void OnShimDead(Shim* shim);
  uint64_t spawned() const { return spawned_; }
  bool Knows(int pid) const { return workers_.count(pid) != 0; }  // it is not reaped
  bool Hangs(int pid) const;

  // ---- By the training
  // The worker ends by itself, if it lives.
  void EndWorker(Epoch epoch, int rank, bool signaled, int code, std::string says);
  void Hang(Epoch epoch, int rank);  // deaf to everything but SIGKILL
  bool WorkerLives(Epoch epoch, int rank) const;
  void FromWorker(Epoch epoch, int rank, frame::Frame frame);
  void Progress(Epoch epoch, int64_t step, int64_t total);
  // In the worker's own time; not at all if it has ended by then.
  void InWorker(Epoch epoch, int rank, Duration delay, Task task);

  // ---- Faults
  void LosePower();
  void PowerOn();
  int workers_alive() const { return alive_; }
  std::vector<std::pair<Epoch, int>> LivingWorkers() const;
  const std::vector<std::unique_ptr<Shim>>& shims() const { return shims_; }

 private:
  struct Worker {
    Shim* shim = nullptr;
    Epoch epoch;
    int rank = 0;
    int slot = 0;
    bool alive = true;
    bool deaf = false;
    bool hangs = false;
    bool killed_by_shim = false;
    bool ending = false;
    OsExit exit;
  };
  Worker* FindAlive(Epoch epoch, int rank, int* pid = nullptr);
  void End(int pid, bool signaled, int code, bool by_us);
  void Executed(int pid, int error);

  World* world_;
  const int index_;
  const std::string name_;
  Machine machine_;
  Daemon daemon_;
  Process os_;  // where workers run: not stopped when a process of ours is
  std::vector<std::unique_ptr<Shim>> shims_;  // the newest last; what is to come may refer to all
  std::map<int, Worker> workers_;             // by pid, until reaped
  int next_pid_ = 100;
  int alive_ = 0;
  uint64_t spawned_ = 0;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_NODE_H_

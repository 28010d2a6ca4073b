#include "tests/sim/node.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

constexpr Duration kExecLow = milliseconds(1);
constexpr Duration kExecHigh = milliseconds(20);
constexpr Duration kDeathLow = Duration(50'000);
constexpr Duration kDeathHigh = milliseconds(5);

}  // namespace

Node::Node(World* world, int index)
    : world_(world),
      index_(index),
      name_(absl::StrCat("n", index + 1)),
      machine_(&world->timeline(), &world->random()),
      daemon_(world, this),
      os_(&world->timeline(), &machine_) {
  os_.Start();
}

std::vector<NodeAddress> Node::addresses() const {
  return {{"eth0", absl::StrCat("10.", index_ / 65536, ".", index_ / 256 % 256, ".", index_ % 256)},
          {"eth1", absl::StrCat("fd00::", index_ + 1)}};
}

// ---- Shims

Shim* Node::listening_shim() {
  return !shims_.empty() && shims_.back()->listens() ? shims_.back().get() : nullptr;
}

bool Node::any_shim_alive() const {
  return std::any_of(shims_.begin(), shims_.end(), [](const auto& s) { return s->alive(); });
}

Shim* Node::StartShim() {
  shims_.push_back(std::make_unique<Shim>(world_, this));
  world_->trace(name_, " shim starts");
  return shims_.back().get();
}

void Node::OnShimDead(Shim* shim) {
  // A worker that lost both its parents is init's, and nobody of ours reaps it.
  std::erase_if(workers_, [shim](const auto& entry) {
    return entry.second.shim == shim && !entry.second.alive;
  });
  daemon_.OnShimDead(shim);
}

// ---- Processes

int Node::Fork(Shim* shim, Epoch epoch, int rank, int slot) {
  if (world_->faults().ForkFails()) return -1;
  const int pid = next_pid_++;
  Worker worker;
  worker.shim = shim;
  worker.epoch = epoch;
  worker.rank = rank;
  worker.slot = slot;
  worker.deaf = world_->faults().WorkerIsDeaf();
  workers_[pid] = worker;
  ++alive_;
  ++spawned_;
  world_->checkers().OnSpawned(index_, slot, epoch, rank, pid);
  const int error = world_->faults().ExecError();
  os_.After(world_->random().Between(kExecLow, kExecHigh),
            [this, pid, error] { Executed(pid, error); });
  return pid;
}

void Node::Executed(int pid, int error) {
  const auto found = workers_.find(pid);
  if (found == workers_.end() || !found->second.alive) return;
  found->second.exit.exec_error = error;
  Shim* shim = found->second.shim;
  const Epoch epoch = found->second.epoch;
  const int rank = found->second.rank;
  shim->OnExecuted(pid, error);
  if (error != 0) return End(pid, false, 127, false);
  world_->OnWorkerRuns(epoch, rank, index_);
}

void Node::Terminate(int pid) {
  const auto found = workers_.find(pid);
  if (found == workers_.end() || !found->second.alive) return;
  found->second.killed_by_shim = true;
  if (found->second.deaf || found->second.ending) return;
  found->second.ending = true;
  const bool clean = world_->random().Chance(0.3);
  os_.After(world_->random().Between(milliseconds(1), milliseconds(800)), [this, pid, clean] {
    clean ? End(pid, false, 0, true) : End(pid, true, SIGTERM, true);
  });
}

void Node::KillWorker(int pid) {
  const auto found = workers_.find(pid);
  if (found == workers_.end() || !found->second.alive) return;
  found->second.killed_by_shim = true;
  os_.After(world_->random().Between(kDeathLow, kDeathHigh),
            [this, pid] { End(pid, true, SIGKILL, true); });
}

void Node::End(int pid, bool signaled, int code, bool by_us) {
  const auto found = workers_.find(pid);
  if (found == workers_.end() || !found->second.alive) return;
  Worker& worker = found->second;
  worker.alive = false;
  worker.exit.signaled = signaled;
  worker.exit.code = code;
  worker.exit.by_us = by_us;
  --alive_;
  const Epoch epoch = worker.epoch;
  const int rank = worker.rank;
  Shim* shim = worker.shim;
  world_->checkers().OnEnded(index_, worker.slot, epoch, rank, pid);
  if (!shim->alive()) {
    world_->checkers().OnReaped(index_, pid);  // by init
    workers_.erase(found);
  } else {
    shim->OnEnded();
  }
  world_->OnWorkerEnded(epoch, rank, signaled || code != 0);
}

std::optional<OsExit> Node::Reap(int pid) {
  const auto found = workers_.find(pid);
  if (found == workers_.end() || found->second.alive) return std::nullopt;
  OsExit exit = std::move(found->second.exit);
  workers_.erase(found);
  if (!world_->broken(Mutation::kNeverReap)) world_->checkers().OnReaped(index_, pid);
  return exit;
}

bool Node::ReapForDying(int pid) {
  const auto found = workers_.find(pid);
  if (found == workers_.end()) return true;
  if (found->second.alive) return false;
  world_->checkers().OnReaped(index_, pid);
  workers_.erase(found);
  return true;
}

// ---- What workers do

Node::Worker* Node::FindAlive(Epoch epoch, int rank, int* pid) {
  for (auto& [number, worker] : workers_) {
    if (!worker.alive || worker.epoch != epoch || worker.rank != rank) continue;
    if (pid) *pid = number;
    return &worker;
  }
  return nullptr;
}

bool Node::WorkerLives(Epoch epoch, int rank) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second.alive && entry.second.epoch == epoch && entry.second.rank == rank;
  });
}

void Node::EndWorker(Epoch epoch, int rank, bool signaled, int code, std::string says) {
  int pid = 0;
  Worker* worker = FindAlive(epoch, rank, &pid);
  if (!worker || worker->ending) return;
  worker->ending = true;
  worker->exit.says = std::move(says);
  os_.After(Duration(1), [this, pid, signaled, code] { End(pid, signaled, code, false); });
}

void Node::Hang(Epoch epoch, int rank) {
  if (Worker* worker = FindAlive(epoch, rank)) worker->deaf = worker->hangs = true;
}

bool Node::Hangs(int pid) const {
  const auto found = workers_.find(pid);
  return found != workers_.end() && found->second.hangs;
}

void Node::FromWorker(Epoch epoch, int rank, frame::Frame frame) {
  if (Worker* worker = FindAlive(epoch, rank)) {
    worker->shim->OnWorkerFrame(epoch.value, rank, std::move(frame));
  }
}

void Node::Progress(Epoch epoch, int64_t step, int64_t total) {
  if (Worker* worker = FindAlive(epoch, 0)) {
    worker->shim->SendProgress(epoch.value, step, total);
  }
}

void Node::InWorker(Epoch epoch, int rank, Duration delay, Task task) {
  os_.After(delay, [this, epoch, rank, task = std::move(task)] {
    if (WorkerLives(epoch, rank)) task();
  });
}

void Node::OnGranted(int64_t epoch, const frame::CommitGranted& granted) {
  world_->OnGranted(Epoch(epoch), index_, granted);
}

void Node::OnPageRequest(int64_t epoch, bool checkpoint, bool stop) {
  world_->OnPageRequest(Epoch(epoch), checkpoint, stop);
}

std::vector<std::pair<Epoch, int>> Node::LivingWorkers() const {
  std::vector<std::pair<Epoch, int>> living;
  for (const auto& [pid, worker] : workers_) {
    if (worker.alive) living.emplace_back(worker.epoch, worker.rank);
  }
  return living;
}

// ---- Power

void Node::LosePower() {
  if (!machine_.powered()) return;
  daemon_.LosePower();
  machine_.PowerOff();
  std::vector<std::pair<Epoch, int>> ended;
  for (auto& [pid, worker] : workers_) {
    if (worker.alive) {
      world_->checkers().OnEnded(index_, worker.slot, worker.epoch, worker.rank, pid);
      ended.emplace_back(worker.epoch, worker.rank);
    }
    world_->checkers().OnReaped(index_, pid);
  }
  workers_.clear();
  alive_ = 0;
  for (const auto& [epoch, rank] : ended) world_->OnWorkerEnded(epoch, rank, true);
}

void Node::PowerOn() {
  if (machine_.powered()) return;
  machine_.PowerOn();
  os_.Start();
}

}  // namespace trainctl::sim

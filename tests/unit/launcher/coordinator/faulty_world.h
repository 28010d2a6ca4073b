// The coordinator among nodes that fail in every way, driven by one seed: streams break, daemons
// restart, machines reboot and are replaced, workers die, nodes are drained, the coordinator is
// killed between two records and between what it persists and what it performs. What must hold is
// checked on the nodes, outside the code under test.
#ifndef TRAINCTL_TESTS_UNIT_LAUNCHER_COORDINATOR_FAULTY_WORLD_H_
#define TRAINCTL_TESTS_UNIT_LAUNCHER_COORDINATOR_FAULTY_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/coordinator.h"

namespace trainctl {

inline constexpr Duration kTick = milliseconds(100);
inline constexpr Duration kLease = seconds(4);
inline constexpr int kWorkers = 2;

// A node as its shim and daemon behave: in-order streams, workers that obey, a lease of its own.
struct SimNode {
  std::string name;
  std::string machine;
  int64_t incarnation = 1;
  bool up = true;  // false: cut off from the coordinator, workers go on
  bool connected = false;
  Term term;
  Epoch epoch{-1};
  bool gone = true;
  bool gone_told = true;
  std::vector<WorkerState> workers;
  Instant lease_end = kNever;
  Instant next_ask;
  uint64_t requests = 0;
  std::map<uint64_t, Instant> sent;
  Instant kill_at = kNever;
  std::deque<Action> inbox;  // delivered a tick later
  std::deque<Event> outbox;
  int port = 20000;
  int64_t saved = 0;

  bool HasRunning() const {
    return std::any_of(workers.begin(), workers.end(), [](const auto& w) { return w.running; });
  }
};

class World {
 public:
  World(uint64_t seed, int nodes, int fewest, int most) : random_(seed) {
    spec_.job_id = "job";
    spec_.command = {"train"};
    spec_.min_nodes = fewest;
    spec_.max_nodes = most;
    spec_.spares = nodes - most;
    if (seed % 2 == 0) spec_.checkpoint_folder = "/ckpt";
    spec_.workers_per_node = kWorkers;
    spec_.max_restarts = 1000;
    spec_.window_restarts = 1000;
    spec_.lease = kLease;
    spec_.grace = seconds(2);
    spec_.orphan_timeout = seconds(-1);
    for (int i = 0; i < nodes; ++i) {
      nodes_.emplace_back();
      nodes_.back().name = absl::StrCat("n", i);
      nodes_.back().machine = absl::StrCat("m", i);
    }
    StartCoordinator();
  }

  void Run(Duration duration, bool faults) {
    const Instant end = now_ + duration;
    while (now_ < end && !testing::Test::HasFailure()) {
      now_ = now_ + kTick;
      if (faults) Break();
      for (SimNode& node : nodes_) Live(node);
      for (const Event& answer : std::exchange(answers_, {})) Tell(answer);
      if (coordinator_->next_deadline() <= now_) Tell(DeadlineReached{});
      EXPECT_GT(coordinator_->next_deadline(), now_) << Explain();
      Check();
    }
  }

  void FinishWorkers() { finishing_ = true; }
  JobPhase phase() const { return coordinator_->View(now_).phase; }
  std::string Explain() const { return coordinator_->Explain(now_); }
  const JobSpec& spec() const { return spec_; }
  const std::vector<JournalRecord>& journal() const { return journal_; }
  void Heal() {
    for (SimNode& node : nodes_) node.up = true;
    for (const SimNode& node : nodes_) Tell(DrainAsked{node.name, false, "a test"});
  }
  int epochs() const { return static_cast<int>(coordinator_->View(now_).epoch.value) + 1; }
  bool AnyRunning() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n.HasRunning(); });
  }

 private:
  bool Chance(double probability) {
    return std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }
  SimNode& AnyNode() {
    return nodes_[std::uniform_int_distribution<size_t>(0, nodes_.size() - 1)(random_)];
  }

  void StartCoordinator() {
    for (SimNode& node : nodes_) Disconnect(node);
    const bool first = journal_.empty();
    coordinator_ = std::make_unique<Coordinator>(first ? Coordinator(spec_)
                                                       : Coordinator::Replay(spec_, journal_));
    ++term_;
    Batch batch;
    coordinator_->Start(now_, now_.ns, Term(term_), &batch);
    Perform(batch);
  }

  void Tell(const Event& event) {
    Batch batch;
    coordinator_->Step(now_, now_.ns, event, &batch);
    Perform(batch);
  }

  void Perform(const Batch& batch) {
    for (const JournalRecord& record : batch.persist) {
      if (dying_ && Chance(0.1)) dead_ = true;
      if (dead_) return;  // killed before the next record was durable
      journal_.push_back(record);
    }
    if (dead_) return;
    for (const Action& action : batch.perform) {
      if (dying_ && Chance(0.5)) return;  // killed in the middle of it
      if (std::holds_alternative<FindCheckpoints>(action)) {
        answers_.push_back(CheckpointsFound{{published_.begin(), published_.end()}});
      }
      if (const auto* refusal = std::get_if<RefuseNode>(&action)) Refused(*refusal);
      std::visit(
          [&](const auto& a) {
            if constexpr (requires { a.node; }) {
              for (SimNode& node : nodes_) {
                if (node.name == a.node && node.connected) node.inbox.push_back(a);
              }
            }
          },
          action);
    }
  }

  void Break() {
    if (Chance(0.01)) Disconnect(AnyNode());
    if (Chance(0.005)) AnyNode().up = false;
    if (Chance(0.05)) AnyNode().up = true;
    if (Chance(0.01)) {  // the daemon restarts, the shim lives on
      SimNode& node = AnyNode();
      Disconnect(node);
      ++node.incarnation;
    }
    if (Chance(0.002)) Reboot(AnyNode(), false);
    if (Chance(0.001)) Reboot(AnyNode(), true);
    if (Chance(0.003)) Tell(DrainAsked{AnyNode().name, Chance(0.4), "a test"});
    if (Chance(0.01)) KillWorker(AnyNode());
    if (Chance(0.005)) {
      dying_ = true;
      for (SimNode& node : nodes_) Live(node);
      dying_ = dead_ = false;
      answers_.clear();
      StartCoordinator();
    }
  }

  void Disconnect(SimNode& node) {
    if (node.connected && coordinator_) {
      node.connected = false;
      Tell(NodeLeft{node.name, Incarnation(node.incarnation), "cut"});
    }
    node.connected = false;
    node.inbox.clear();
    node.outbox.clear();
    node.sent.clear();
  }

  void Reboot(SimNode& node, bool replace) {
    Disconnect(node);
    const std::string name = node.name;
    const std::string machine = replace ? absl::StrCat(node.machine, "'") : node.machine;
    const int64_t incarnation = replace ? 1 : node.incarnation + 1;
    node = SimNode();
    node.name = name;
    node.machine = machine;
    node.incarnation = incarnation;
  }

  void KillWorker(SimNode& node) {
    if (!node.workers.empty() && node.workers[0].running) End(node, node.workers[0], 9, false);
  }

  void End(SimNode& node, WorkerState& worker, int code, bool by_us) {
    if (!worker.running) return;
    worker.running = false;
    worker.exit.kind = code == 0 ? WorkerExit::Kind::kExited : WorkerExit::Kind::kSignaled;
    worker.exit.code = code;
    worker.exit.by_us = by_us;
    worker.exit.exit_ns = now_.ns;
    if (node.connected)
      node.outbox.push_back(WorkerExited{node.name, node.epoch, worker.rank, worker.exit});
  }

  void EndAll(SimNode& node) {
    for (WorkerState& worker : node.workers) End(node, worker, 9, true);
    node.kill_at = kNever;
  }

  void Live(SimNode& node) {
    if (!node.up) Disconnect(node);
    if (node.lease_end <= now_) EndAll(node);
    if (node.kill_at <= now_) EndAll(node);
    std::deque<Action> orders = std::exchange(node.inbox, {});
    for (const Action& order : orders) Obey(node, order);
    if (finishing_ && !node.gone && Chance(0.05)) {
      for (WorkerState& worker : node.workers) End(node, worker, 0, false);
    }
    if (!node.gone && !node.HasRunning()) {
      node.gone = true;
      node.lease_end = kNever;
      if (node.connected) node.outbox.push_back(NodeEpochGone{node.name, node.epoch});
    }
    if (node.up && !node.connected && Chance(0.3)) Join(node);
    if (!node.connected) return;
    Train(node);
    if (!node.gone && now_ >= node.next_ask) {
      node.next_ask = now_ + kLease / 3;
      node.sent[++node.requests] = now_;
      node.outbox.push_back(
          LeaseRequested{node.name, Incarnation(node.incarnation), node.requests});
    }
    std::deque<Event> events = std::exchange(node.outbox, {});
    for (const Event& event : events) Tell(event);
  }

  void Join(SimNode& node) {
    node.connected = true;
    NodeJoined joined;
    joined.node = node.name;
    joined.incarnation = Incarnation(node.incarnation);
    joined.addresses = {{"eth0", node.name}};
    joined.machine = node.machine;
    joined.slots = kWorkers;
    joined.reserved_port = node.port;
    joined.term = node.term;
    joined.epoch = node.epoch;
    joined.gone = node.gone;
    joined.workers = node.workers;
    node.next_ask = now_;
    Tell(joined);
  }

  void Obey(SimNode& node, const Action& order) {
    node.term = Term(term_);
    if (const auto* start = std::get_if<StartWorkers>(&order)) return Start(node, *start);
    if (const auto* ask = std::get_if<ProbeAddress>(&order)) return Reach(node, *ask);
    if (const auto* grant = std::get_if<GrantCommit>(&order)) return Publish(node, *grant);
    if (const auto* stop = std::get_if<StopWorkers>(&order)) {
      if (stop->epoch != node.epoch) return;
      node.kill_at = std::min(node.kill_at, now_ + (Chance(0.5) ? Duration(0) : stop->grace));
    }
    if (const auto* lease = std::get_if<AnswerLease>(&order)) {
      if (!lease->granted) return EndAll(node);
      const auto sent = node.sent.find(lease->request_id);
      if (sent != node.sent.end() && !node.gone) node.lease_end = sent->second + lease->lease;
    }
    if (std::holds_alternative<ReleaseNode>(order)) EndAll(node);
  }

  // Its stream is closed; nothing more of it is delivered.
  void Refused(const RefuseNode& refusal) {
    for (SimNode& node : nodes_) {
      if (node.name != refusal.node || node.machine != refusal.machine ||
          Incarnation(node.incarnation) != refusal.incarnation) {
        continue;
      }
      node.connected = false;
      node.inbox.clear();
      node.outbox.clear();
      node.sent.clear();
    }
  }

  void Publish(SimNode& node, const GrantCommit& grant) {
    if (node.epoch != grant.epoch || !node.HasRunning()) return;
    published_.insert(grant.step);
    for (const Step old : grant.may_delete) published_.erase(old);
    node.outbox.push_back(CheckpointPublished{grant.epoch, grant.step});
  }

  // Workers step together, and save now and then.
  void Train(SimNode& node) {
    if (spec_.checkpoint_folder.empty() || node.gone || !node.HasRunning()) return;
    const int64_t step = now_.ns / Duration(seconds(5)).count();
    if (std::exchange(node.saved, step) == step) return;
    for (const WorkerState& worker : node.workers) {
      if (!worker.running) return;
      node.outbox.push_back(ShardPrepared{node.epoch, Step(step), {worker.rank, "f", 1, "d"}});
    }
  }

  void Reach(SimNode& node, const ProbeAddress& ask) {
    if (Chance(0.02)) return;
    AddressesReached reached{node.name, ask.probe, {}};
    for (const auto& target : ask.targets) {
      if (!Chance(0.02)) reached.reached.push_back({target.address, node.name});
    }
    node.outbox.push_back(reached);
  }

  void Start(SimNode& node, const StartWorkers& start) {
    if (start.epoch <= node.epoch) return;  // told twice
    EXPECT_TRUE(node.gone) << node.name << ": two epochs on one slot";
    for (const SimNode& other : nodes_) {
      EXPECT_FALSE(other.HasRunning() && other.epoch < start.epoch)
          << "epoch " << start.epoch.value << " starts on " << node.name << " while epoch "
          << other.epoch.value << " runs on " << other.name;
    }
    node.epoch = start.epoch;
    node.gone = false;
    node.lease_end = now_ + kLease;
    node.kill_at = kNever;
    node.next_ask = now_;
    node.workers.clear();
    for (const WorkerLaunch& launch : start.workers) {
      placed_.insert({start.epoch, launch.rank, node.name});
      WorkerState worker;
      worker.rank = launch.rank;
      worker.running = true;
      node.workers.push_back(worker);
    }
    node.outbox.push_back(WorkersStarted{node.name, node.epoch, ++node.port, node.workers});
  }

  // A rank of an epoch lives on one node only.
  void Check() {
    std::map<std::pair<Epoch, int>, std::string> where;
    for (const auto& [epoch, rank, node] : placed_) {
      const auto [it, is_new] = where.insert({{epoch, rank}, node});
      EXPECT_TRUE(is_new || it->second == node)
          << "rank " << rank << " of epoch " << epoch.value << " was started on " << it->second
          << " and " << node;
    }
    EXPECT_FALSE(coordinator_->Explain(now_).empty());
  }

  JobSpec spec_;
  std::mt19937_64 random_;
  Instant now_{1'000'000'000};
  std::vector<SimNode> nodes_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<JournalRecord> journal_;
  std::set<std::tuple<Epoch, int, std::string>> placed_;
  std::set<Step> published_;
  std::vector<Event> answers_;
  int64_t term_ = 0;
  bool dying_ = false;
  bool dead_ = false;
  bool finishing_ = false;
};

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_UNIT_LAUNCHER_COORDINATOR_FAULTY_WORLD_H_

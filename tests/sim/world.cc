#include "tests/sim/world.h"

#include <algorithm>
#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace trainctl::sim {
namespace {

constexpr int64_t kWallOrigin = 1'700'000'000'000'000'000;
constexpr Duration kBetweenLooks = milliseconds(500);
constexpr uint64_t kMostInOneInstant = 20'000'000;

}  // namespace

const char* MutationName(Mutation mutation) {
  static constexpr std::array<const char*, kMutations> kNames = {"none",
                                                                 "act-before-durable",
                                                                 "lose-synced-tail",
                                                                 "lease-never-ends",
                                                                 "start-beside-old",
                                                                 "second-stop-kills",
                                                                 "never-reap",
                                                                 "same-ranks",
                                                                 "move-ranks",
                                                                 "invent-checkpoint",
                                                                 "hide-checkpoints",
                                                                 "delete-too-much",
                                                                 "publish-ungranted",
                                                                 "hear-old-terms",
                                                                 "forget-failures",
                                                                 "forget-end",
                                                                 "forget-epoch",
                                                                 "forget-nobody",
                                                                 "say-nothing",
                                                                 "never-dial-again",
                                                                 "unseeded",
                                                                 "crash"};
  return kNames[static_cast<size_t>(mutation)];
}

World::World(const Options& options)
    : options_(options), random_(options.seed), disk_(random_.Fork()) {
  if (broken(Mutation::kUnseeded)) {
    static uint64_t worlds = 0;
    random_ = Random(options.seed + ++worlds);
  }
  DrawSpec();
  checkers_ = std::make_unique<Checkers>(this);
  faults_ = std::make_unique<Faults>(this, random_.Fork());
  network_ = std::make_unique<Network>(
      &timeline_, random_.Fork(),
      Network::Ends{
          [this] { return driver_->listens(); },
          [this](StreamId id, int node, Event e) { driver_->OnEvent(id, node, std::move(e)); },
          [this](StreamId id) { driver_->OnNodeClosed(id); },
          [this](int node) {
            return this->node(node).machine().runs() &&
                   !this->node(node).daemon().process().stopped();
          },
          [this](int node, StreamId id, Order order) {
            this->node(node).daemon().OnOrder(id, std::move(order));
          },
          [this](int node, StreamId id) { this->node(node).daemon().OnCoordinatorClosed(id); }});
  for (int i = 0; i < options_.nodes; ++i) {
    nodes_.push_back(std::make_unique<Node>(this, i));
    network_->AddNode(i == 0);
  }
  pardoned_until_.resize(nodes_.size());
  driver_ = std::make_unique<Driver>(this);
}

void World::DrawSpec() {
  Random random = random_.Fork();
  spec_.job_id = "job";
  spec_.command = {"train"};
  spec_.cwd = "/";
  spec_.log_folder = "/logs";
  spec_.job_folder = "/job";
  const int nodes = options_.nodes;
  spec_.max_nodes = nodes;
  spec_.min_nodes = nodes;
  if (options_.faults && nodes > 1 && random.Chance(0.6)) {
    spec_.spares = random.Chance(0.5) ? random.Int(0, std::max(1, nodes / 4)) : 0;
    spec_.max_nodes = std::max(1, nodes - spec_.spares);
    spec_.min_nodes = random.Int(std::max(1, spec_.max_nodes / 2), spec_.max_nodes);
  }
  spec_.workers_per_node = options_.slots;
  spec_.max_restarts = random.Chance(0.8) ? 100'000 : random.Int(0, 4);
  spec_.window_restarts = random.Chance(0.8) ? 100'000 : random.Int(2, 20);
  spec_.no_progress_epochs = random.Chance(0.8) ? 100'000 : 3;
  spec_.lease = random.Between(seconds(1), seconds(12));
  spec_.grace = random.Between(milliseconds(500), seconds(15));
  spec_.join_timeout = seconds(random.Chance(0.8) ? 3600 : 60);
  spec_.orphan_timeout = seconds(-1);
  spec_.checkpoint_folder = random.Chance(0.85) ? "/checkpoints" : "";
  spec_.checkpoint_keep = random.Int(1, 4);
  step_time_ = random.Between(milliseconds(300), seconds(2));
  const auto steps = options_.duration / step_time_;
  total_steps_ = random.Chance(0.8) ? 1'000'000 : 1 + random.Int(0, static_cast<int>(steps));
  steps_between_checkpoints_ = random.Int(3, 30);
  if (options_.min_nodes) spec_.min_nodes = *options_.min_nodes;
  if (options_.max_restarts) spec_.max_restarts = *options_.max_restarts;
  if (options_.faults && options_.rare == 1) return;
  spec_.checkpoint_folder = "/checkpoints";
  steps_between_checkpoints_ = 300;
  step_time_ = seconds(1);
  total_steps_ = 1'000'000;
  spec_.lease = seconds(10);
}

// ---- Running

void World::Begin() {
  trace("spec: nodes ", spec_.min_nodes, ":", spec_.max_nodes, " of ", options_.nodes, ", spares ",
        spec_.spares, ", workers ", spec_.workers_per_node, ", restarts ", spec_.max_restarts,
        ", lease ", spec_.lease.count(), ", grace ", spec_.grace.count());
  trace("faults: ", faults_->Plan());
  for (const auto& node : nodes_) {
    const bool late = options_.faults && random_.Chance(0.1);
    const Duration delay = !options_.faults ? milliseconds(1)
                           : late           ? random_.Between(seconds(1), seconds(30))
                                            : random_.Between(milliseconds(1), seconds(1));
    timeline_.After(node->index() == 0 ? Duration(0) : delay,
                    [daemon = &node->daemon()] { daemon->Start(); });
  }
  if (options_.faults) timeline_.After(seconds(2), [this] { faults_->Begin(); });
  if (options_.strike) faults_->Prepare(*options_.strike);
}

void World::RunUntil(Instant until) {
  while (!violated()) {
    const Instant look = std::min(until, timeline_.now() + kBetweenLooks);
    while (!violated() && timeline_.RunNext(look)) {
      if (timeline_.now() != instant_) {
        instant_ = timeline_.now();
        in_one_instant_ = 0;
      } else if (++in_one_instant_ > kMostInOneInstant) {
        return Violation("endless loop", "time does not go on");
      }
    }
    if (violated()) return;
    checkers_->OnLook();
    const Coordinator* coordinator = driver_->coordinator();
    const bool runs = coordinator && coordinator->phase() == JobPhase::kRunning;
    if (runs && result_.to_running == Duration(0)) result_.to_running = timeline_.now() - Instant{};
    if (timeline_.now() >= until || driver_->outcome()) return;
  }
}

Result World::Run() {
  Begin();
  RunUntil(Instant{} + options_.duration);
  if ((options_.faults || options_.strike) && !violated()) {
    trace("everything heals");
    faults_->Heal();
    CheckLiveness();
  }
  if (!violated() && driver_->outcome()) AfterTheEnd();
  Finish();
  return std::move(result_);
}

bool World::Settled() {
  if (driver_->outcome()) return true;
  const Coordinator* coordinator = driver_->coordinator();
  if (!coordinator || coordinator->phase() != JobPhase::kRunning) return false;
  const Training* running = training(coordinator->epoch());
  return running && running->steps_done() > 0;
}

void World::CheckLiveness() {
  // A lost node's lease, an epoch that is told to end, the longest back-off, those who may be back,
  // the last call, a meeting that is tried again, and the coordinator's own restarts.
  const Duration bound =
      3 * (spec_.lease + spec_.grace) + seconds(30 + 10 + 15 + 10) + 10 * step_time_;
  const Instant give_up = timeline_.now() + bound;
  Instant settled_since = kNever;
  while (!violated() && timeline_.now() < give_up) {
    RunUntil(timeline_.now() + seconds(1));
    if (driver_->outcome()) return;
    if (!Settled()) {
      settled_since = kNever;
    } else if (settled_since == kNever) {
      settled_since = timeline_.now();
    } else if (timeline_.now() - settled_since >= seconds(5)) {
      return;
    }
  }
  if (violated()) return;
  const auto ready = std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node->machine().runs() && node->daemon().process().runs();
  });
  const Coordinator* coordinator = driver_->coordinator();
  result_.verdict = Verdict::kStuck;
  result_.checker = "liveness";
  result_.text = absl::StrCat(
      "the job does not run ", ToSeconds(bound), " s after all faults ended: ",
      coordinator ? coordinator->Explain(node(0).machine().Now()) : "it has no coordinator",
      "; it could: ", ready, " nodes run and are reached, and it needs ", spec_.min_nodes);
}

// The end is final: what is left of the job ends, and a coordinator that is started again does not
// run it again.
void World::AfterTheEnd() {
  if (options_.faults) faults_->Heal();
  const Instant end = timeline_.now();
  const auto run_for = [this](Duration duration) {
    const Instant until = timeline_.now() + duration;
    while (!violated() && timeline_.now() < until) {
      while (!violated() && timeline_.RunNext(until)) {
      }
      checkers_->OnLook();
    }
  };
  run_for(spec_.grace + 2 * spec_.lease + seconds(10));
  result_.end = absl::StrCat(OutcomeName(driver_->outcome()->kind), " at ",
                             ToSeconds(end - Instant{}), " s: ", driver_->outcome()->reason);
  if (violated()) return;
  for (const auto& node : nodes_) {
    if (node->workers_alive() == 0 || excused(node->index())) continue;
    return Violation("old workers", absl::StrCat(node->workers_alive(), " workers run on ",
                                                 node->name(), " after the end of the job"));
  }
  if (driver_->process().alive() || !node(0).machine().powered()) return;
  driver_->Start();
  run_for(seconds(20));
}

void World::Finish() {
  if (!violated()) checkers_->OnEnd();
  result_.epochs = trainings_.empty() ? 0 : trainings_.rbegin()->first.value + 1;
  result_.terms = driver_->terms();
  result_.faults = faults_->happened();
  for (const auto& [epoch, training] : trainings_) result_.steps += training->steps_done();
  if (result_.end.empty()) result_.end = "runs";
}

// ---- The job's program

int World::IndexOf(const std::string& name) const {
  int number = 0;
  if (name.size() < 2 || name[0] != 'n') return -1;
  if (!absl::SimpleAtoi(absl::string_view(name).substr(1), &number)) return -1;
  return number >= 1 && number <= static_cast<int>(nodes_.size()) ? number - 1 : -1;
}

Training* World::training(Epoch epoch) {
  const auto found = trainings_.find(epoch);
  return found == trainings_.end() ? nullptr : found->second.get();
}

void World::OnFormed(const EpochFormed& formed) {
  trace("epoch ", formed.epoch.value, " on ", formed.nodes.size(), " nodes from step ",
        formed.resume_step.value, ": ", formed.reason);
  // With a stranger nobody trains.
  for (const NodeShare& share : formed.nodes) {
    if (IndexOf(share.node) < 0) return;
  }
  std::unique_ptr<Training>& training = trainings_[formed.epoch];
  if (training) return;
  training = std::make_unique<Training>(this, formed);
  newest_ = training.get();
}

void World::OnWorkerRuns(Epoch epoch, int rank, int) {
  if (Training* found = training(epoch)) found->Runs(rank);
}

void World::OnWorkerEnded(Epoch epoch, int rank, bool failed) {
  trace("rank ", rank, " of epoch ", epoch.value, " ends", failed ? " badly" : "");
  if (Training* found = training(epoch)) found->Ended(rank, failed);
}

void World::OnGranted(Epoch epoch, int node, const frame::CommitGranted& granted) {
  Training* found = training(epoch);
  if (found && found->NodeOf(0) == node) found->Granted(granted);
}

void World::OnPageRequest(Epoch epoch, bool checkpoint, bool stop) {
  if (Training* found = training(epoch)) found->Request(checkpoint, stop);
}

std::vector<Step> World::ListCheckpoints() {
  if (broken(Mutation::kHideCheckpoints)) return {};
  std::vector<Step> steps = folder_.List();
  if (broken(Mutation::kInventCheckpoint)) {
    steps.push_back(steps.empty() ? Step(1) : steps.back().Next());
  }
  return steps;
}

void World::OnProbe(int index, const ProbeAddress& ask) {
  AddressesReached reached{node(index).name(), ask.probe, {}};
  for (const ProbeAddress::Target& target : ask.targets) {
    // The second network is one over which half of the nodes reach nobody.
    if (target.address.find(':') != std::string::npos && index % 2 == 1) continue;
    reached.reached.push_back({target.address, node(index).addresses().front().address});
  }
  node(index).daemon().Answer(std::move(reached));
}

bool World::SentToNodes(const Action& action) const {
  return std::holds_alternative<StartWorkers>(action) ||
         std::holds_alternative<StopWorkers>(action) ||
         std::holds_alternative<GrantCommit>(action) ||
         std::holds_alternative<RequestCheckpoint>(action);
}

// ---- Machines

void World::StopMachine(int index, bool clock_stands) {
  Machine& machine = node(index).machine();
  if (!machine.runs()) return;
  machine.Pause(clock_stands);
  ++machines_stopped_;
  network_->CheckSilence(index);
}

void World::ResumeMachine(int index) {
  Machine& machine = node(index).machine();
  if (!machine.paused()) return;
  --machines_stopped_;
  machine.Resume();
  // A clock that stood still makes the lease longer by as much.
  pardoned_until_[static_cast<size_t>(index)] = timeline_.now() + spec_.lease + seconds(2);
  network_->CheckSilence(index);
}

void World::PowerOff(int index) {
  if (!node(index).machine().powered()) return;
  ResumeMachine(index);
  trace(node(index).name(), " loses power");
  if (index == 0) driver_->LosePower();
  node(index).LosePower();
  network_->CheckSilence(index);
}

void World::PowerOn(int index) {
  if (node(index).machine().powered()) return;
  trace(node(index).name(), " has power again");
  node(index).PowerOn();
  network_->CheckSilence(index);
  node(index).daemon().Start();
}

bool World::excused(int index) const {
  const Node& node = *nodes_[static_cast<size_t>(index)];
  const Shim* shim = node.shims().empty() ? nullptr : node.shims().back().get();
  return !node.machine().runs() || (shim && !shim->CanAct()) ||
         pardoned_until_[static_cast<size_t>(index)] >= timeline_.now();
}

// ---- Mutations, time and the trace

void World::Mutate(Batch* batch) const {
  for (Action& action : batch->perform) {
    auto* start = std::get_if<StartWorkers>(&action);
    if (!start || !broken(Mutation::kSameRanks) || start->workers.size() < 2) continue;
    start->workers[1].rank = start->workers[0].rank;
  }
  for (JournalRecord& record : batch->persist) {
    auto* formed = std::get_if<EpochFormed>(&record);
    if (!formed || !broken(Mutation::kMoveRanks) || formed->nodes.size() < 2) continue;
    if (formed->epoch.value % 2 == 1) std::swap(formed->nodes[0].node, formed->nodes[1].node);
  }
}

void World::ForgetAtStart(std::vector<JournalRecord>* records) const {
  std::erase_if(*records, [this](const JournalRecord& record) {
    return (broken(Mutation::kForgetFailures) && std::holds_alternative<EpochCondemned>(record)) ||
           (broken(Mutation::kForgetEnd) && std::holds_alternative<Finished>(record));
  });
}

int64_t World::WallClock() const { return kWallOrigin + timeline_.now().ns; }

void World::Violation(const std::string& checker, std::string text) {
  if (violated()) return;
  trace("violation of ", checker, ": ", text);
  result_.verdict = checker == "endless loop" ? Verdict::kStuck : Verdict::kUnsafe;
  result_.checker = checker;
  result_.text = absl::StrFormat("at %.6f s: %s", ToSeconds(timeline_.now() - Instant{}), text);
}

void World::AddToTrace(const std::string& line) {
  absl::StrAppendFormat(&result_.trace, "%.6f %s\n", ToSeconds(timeline_.now() - Instant{}), line);
}

// FNV-1a over words.
void World::MixIn(uint64_t value) { result_.digest = (result_.digest ^ value) * 0x100000001b3u; }

}  // namespace trainctl::sim

#include "tests/sim/faults.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

constexpr double kUsualNodes = 64;

}  // namespace

Faults::Faults(World* world, Random random) : world_(world), random_(random) {
  const auto draw = [this](double most) {
    return random_.Chance(0.4) ? random_.Unit() * most : 0.0;
  };
  // What can happen to each worker would happen to one of very many at every start.
  const double share = std::min(1.0, kUsualNodes / static_cast<double>(world->options().nodes)) /
                       world->options().rare;
  fork_fails_ = draw(0.002) * share;
  exec_fails_ = draw(0.001) * share;
  deaf_ = draw(0.2);
  twice_ = random_.Chance(0.7) ? random_.Unit() * 0.3 : 0.0;
  shard_fails_ = draw(0.01) * share;
  slow_sync_ = draw(0.2);
  AddWorkerFaults();
  AddProcessFaults();
  AddLinkFaults();
  AddMachineFaults();
  AddDiskFaults();
  AddPeople();
}

void Faults::Add(const char* name, Duration least, Duration most, std::function<void()> strike) {
  const Duration spacing = random_.Between(least, most) * world_->options().rare;
  if (random_.Chance(0.35)) return;  // not in this run
  kinds_.push_back({name, spacing, std::move(strike)});
}

std::string Faults::Plan() const {
  std::string text = absl::StrFormat(
      "fork fails %.4f, exec fails %.4f, deaf %.3f, twice %.3f, shard fails %.4f, slow sync %.3f",
      fork_fails_, exec_fails_, deaf_, twice_, shard_fails_, slow_sync_);
  for (const Kind& kind : kinds_) {
    absl::StrAppendFormat(&text, "; %s every %.0f s", kind.name, ToSeconds(kind.spacing));
  }
  return text;
}

void Faults::Begin() {
  on_ = true;
  for (size_t i = 0; i < kinds_.size(); ++i) Arm(i);
}

void Faults::Arm(size_t kind) {
  const Duration spacing = kinds_[kind].spacing;
  world_->timeline().After(random_.Between(spacing / 2, spacing * 3 / 2), [this, kind] {
    if (!on_) return;
    ++happened_;
    world_->trace("fault: ", kinds_[kind].name);
    kinds_[kind].strike();
    Arm(kind);
  });
}

void Faults::Later(Duration low, Duration high, std::function<void()> task) {
  world_->timeline().After(random_.Between(low, high), [this, task = std::move(task)] {
    if (on_) task();
  });
}

int Faults::AnyNode() { return random_.Int(0, static_cast<int>(world_->nodes().size()) - 1); }

int Faults::AnyButHead() {
  return world_->nodes().size() == 1 ? 0
                                     : random_.Int(1, static_cast<int>(world_->nodes().size()) - 1);
}

// A rack, or all.
std::vector<int> Faults::Neighbours() {
  const int count = static_cast<int>(world_->nodes().size());
  const int first = AnyNode();
  const int size = random_.Chance(0.1) ? count : random_.Int(1, std::max(1, count / 4));
  std::vector<int> nodes;
  for (int i = first; i < std::min(first + size, count); ++i) nodes.push_back(i);
  return nodes;
}

// ---- Asked where they would strike

int Faults::ExecError() {
  if (!Strikes(exec_fails_)) return 0;
  return random_.Chance(0.8) ? ETXTBSY : ENOENT;
}

bool Faults::DiesHere() {
  if (!on_ || boundaries_left_ == 0) return false;
  return --boundaries_left_ == 0;
}

Duration Faults::SyncTime() {
  if (Strikes(slow_sync_)) return random_.Between(milliseconds(50), milliseconds(1500));
  return random_.Between(Duration(200'000), milliseconds(5));
}

// ---- Workers

void Faults::EndSomeWorker() {
  Training* training = world_->newest_training();
  if (!training) return;
  const int rank = random_.Int(0, training->world_size() - 1);
  Node& node = world_->node(training->NodeOf(rank));
  switch (random_.Int(0, 9)) {
    case 0:
      return node.EndWorker(training->epoch(), rank, true, SIGSEGV, "");
    case 1:
      return node.EndWorker(training->epoch(), rank, true, SIGKILL, "");
    case 2:
      return node.EndWorker(training->epoch(), rank, false, 1, "torch: CUDA out of memory");
    case 3:
      return node.EndWorker(training->epoch(), rank, false, 0, "");
    default:
      return node.EndWorker(training->epoch(), rank, false, random_.Int(1, 255), "Boom");
  }
}

void Faults::AddWorkerFaults() {
  Add("worker ends", seconds(10), seconds(200), [this] { EndSomeWorker(); });
  Add("worker hangs", seconds(60), seconds(600), [this] {
    Training* training = world_->newest_training();
    if (!training) return;
    const int rank = random_.Int(0, training->world_size() - 1);
    training->Hang(rank);
    // Nothing of ours ends it; somebody does, in the end.
    const Epoch epoch = training->epoch();
    world_->timeline().After(random_.Between(seconds(1), seconds(60)), [this, epoch, rank] {
      if (Training* t = world_->training(epoch)) {
        world_->node(t->NodeOf(rank)).EndWorker(epoch, rank, true, SIGKILL, "");
      }
    });
  });
}

// ---- Processes of ours

// Never both halves: then nobody is left who could end the workers.
void Faults::KillHalfAShim(Node* node) {
  if (node->shims().empty()) return;
  Shim* shim = node->shims().back().get();
  if (!shim->keeper().alive() || !shim->supervisor().alive()) return;
  world_->trace("of ", node->name());
  random_.Chance(0.5) ? shim->KillKeeper() : shim->KillSupervisor();
}

void Faults::AddProcessFaults() {
  Add("daemon dies", seconds(10), seconds(200), [this] {
    const int node = random_.Chance(0.2) ? 0 : AnyNode();
    world_->node(node).daemon().Kill();
    Later(milliseconds(20), seconds(25), [this, node] { world_->node(node).daemon().Start(); });
  });
  Add("daemon stops", seconds(10), seconds(200), [this] {
    const int node = random_.Chance(0.2) ? 0 : AnyNode();
    world_->node(node).daemon().process().Stop();
    world_->trace("of n", node + 1);
    world_->network().CheckSilence(node);
    Later(milliseconds(20), seconds(40), [this, node] {
      world_->node(node).daemon().process().Continue();
      world_->network().CheckSilence(node);
    });
  });
  Add("shim dies", seconds(10), seconds(200), [this] { KillHalfAShim(&world_->node(AnyNode())); });
  Add("shim and daemon die", seconds(20), seconds(300), [this] {
    Node& node = world_->node(AnyNode());
    node.daemon().Kill();
    KillHalfAShim(&node);
    const int index = node.index();
    Later(Duration(0), milliseconds(20), [this, index] { world_->node(index).daemon().Start(); });
  });
  Add("shim stops", seconds(20), seconds(300), [this] {
    Node& node = world_->node(AnyNode());
    if (node.shims().empty()) return;
    Shim* shim = node.shims().back().get();
    const int index = node.index();
    const int which = random_.Int(0, 2);
    world_->trace("of ", node.name(), ", which ", which);
    if (which != 0) shim->supervisor().Stop();
    if (which != 1) shim->keeper().Stop();
    const Duration how_long = random_.Between(milliseconds(20), seconds(40));
    world_->timeline().After(how_long, [this, shim, index] {
      shim->supervisor().Continue();
      shim->keeper().Continue();
      world_->Pardon(index);
    });
  });
  Add("coordinator dies", seconds(5), seconds(120), [this] { world_->driver().Kill("a fault"); });
  Add("coordinator dies between two things", seconds(5), seconds(60),
      [this] { boundaries_left_ = random_.Int(1, 60); });
  Add("an old coordinator speaks", seconds(5), seconds(100),
      [this] { world_->node(AnyNode()).daemon().HearOldTerm(); });
  Add("coordinator stops", seconds(20), seconds(300), [this] {
    world_->driver().process().Stop();
    Later(milliseconds(20), seconds(20), [this] { world_->driver().process().Continue(); });
  });
}

// ---- Links

void Faults::AddLinkFaults() {
  Add("link is cut", seconds(10), seconds(200), [this] {
    const int shape = random_.Int(0, 2);
    for (const int node : Neighbours()) {
      world_->trace("of n", node + 1, ", shape ", shape);
      world_->network().Cut(node, shape != 0, shape != 1);
      Later(milliseconds(100), seconds(40),
            [this, node] { world_->network().Cut(node, false, false); });
    }
  });
  Add("stream breaks", seconds(5), seconds(100), [this] {
    for (const int node : Neighbours()) world_->network().Break(node);
  });
  Add("link is slow", seconds(10), seconds(200), [this] {
    for (const int node : Neighbours()) {
      world_->network().Slow(node, random_.Between(milliseconds(1), seconds(3)));
      Later(seconds(1), seconds(40), [this, node] { world_->network().Slow(node, Duration(0)); });
    }
  });
}

// ---- Machines

void Faults::AddMachineFaults() {
  Add("machine stands still", seconds(20), seconds(300), [this] {
    const int node = random_.Chance(0.2) ? 0 : AnyNode();
    world_->trace("of n", node + 1);
    world_->StopMachine(node, random_.Chance(0.5));
    world_->timeline().After(random_.Between(milliseconds(100), seconds(70)),
                             [this, node] { world_->ResumeMachine(node); });
  });
  Add("power is lost", seconds(30), seconds(600), [this] {
    const std::vector<int> lost =
        random_.Chance(0.2) ? Neighbours() : std::vector<int>{random_.Chance(0.2) ? 0 : AnyNode()};
    for (const int node : lost) {
      world_->PowerOff(node);
      Later(seconds(1), seconds(120), [this, node] { world_->PowerOn(node); });
    }
  });
}

// ---- Disk and folder

void Faults::AddDiskFaults() {
  Add("fsync fails", seconds(60), seconds(600), [this] { world_->disk().FailNextSync(); });
  Add("disk is full", seconds(100), seconds(900), [this] {
    world_->disk().set_full(true);
    Later(milliseconds(100), seconds(5), [this] { world_->disk().set_full(false); });
  });
  Add("checkpoint is damaged", seconds(30), seconds(300), [this] {
    const std::vector<Step> steps = world_->folder().List();
    if (steps.empty()) return;
    const Step step = random_.Chance(0.7) ? steps.back() : random_.Pick(steps);
    world_->folder().Damage(step);
    world_->checkers().OnDamaged(step);
  });
}

// ---- People

// A machine that comes once and never again: with too few slots, or as good as any.
void Faults::Stranger() {
  NodeJoined joined;
  joined.node = joined.machine = absl::StrCat("x", ++strangers_);
  joined.incarnation = Incarnation(world_->NextIncarnation());
  joined.addresses = {{"eth0", absl::StrCat("172.16.", strangers_ / 256, ".", strangers_ % 256)}};
  joined.slots = random_.Chance(0.5) ? 0 : world_->slots();
  joined.reserved_port = 20'000;
  const NodeLeft left{joined.node, joined.incarnation, "its stream broke"};
  world_->driver().Tell(std::move(joined));
  world_->timeline().After(random_.Between(milliseconds(1), seconds(5)),
                           [this, left] { world_->driver().Tell(left); });
}

void Faults::AddPeople() {
  Add("strangers come", seconds(10), seconds(300), [this] {
    for (int i = random_.Int(1, 30); i > 0; --i) Stranger();
  });
  Add("somebody drains a node", seconds(60), seconds(600), [this] {
    const std::string node = world_->node(AnyButHead()).name();
    world_->driver().Tell(DrainAsked{node, true, "somebody"});
    Later(seconds(1), seconds(60), [this, node] {
      world_->driver().Tell(DrainAsked{node, false, "somebody"});
    });
  });
  Add("somebody asks to stop", seconds(400), seconds(4000), [this] {
    world_->driver().Tell(StopAsked{"somebody", random_.Chance(0.5), random_.Chance(0.2)});
  });
}

// ---- One thing only

void Faults::Prepare(const Strike& strike) {
  strike_ = strike;
  if (strike.phase != JobPhase::kDraining) return;
  world_->timeline().After(seconds(15), [this] { EndSomeWorker(); });
}

void Faults::OnPhase(JobPhase phase) {
  if (!strike_ || strike_->phase != phase) return;
  const unsigned nodes = strike_->nodes;
  ++happened_;
  for (size_t i = 0; i < world_->nodes().size(); ++i) {
    if ((nodes >> i & 1u) == 0) continue;
    // Not within the batch that brought the job into this phase.
    const Duration delay = random_.Between(Duration(1), milliseconds(1));
    const int node = static_cast<int>(i);
    world_->timeline().After(delay, [this, node] { StrikeNode(node); });
  }
  kind_ = strike_->kind;
  strike_.reset();
}

void Faults::StrikeNode(int index) {
  Node& node = world_->node(index);
  switch (kind_) {
    case Strike::Kind::kPower:
      return world_->PowerOff(index);
    case Strike::Kind::kDaemon:
      return node.daemon().Kill();
    case Strike::Kind::kShim:
      if (!node.shims().empty()) node.shims().back()->KillSupervisor();
      return;
    case Strike::Kind::kLink:
      return world_->network().Cut(index, true, true);
    case Strike::Kind::kMachine:
      return world_->StopMachine(index, false);
    case Strike::Kind::kWorker:
      for (const auto& [epoch, rank] : node.LivingWorkers()) {
        node.EndWorker(epoch, rank, true, SIGSEGV, "");
      }
      return;
  }
}

void Faults::Heal() {
  on_ = false;
  boundaries_left_ = 0;
  world_->disk().set_full(false);
  const int count = static_cast<int>(world_->nodes().size());
  int spare = std::max(0, count - world_->spec().min_nodes);
  for (int i = 0; i < count; ++i) {
    // The job can do without this one.
    const bool stays_away = i > 0 && spare > 0 && random_.Chance(0.3);
    if (stays_away) {
      --spare;
      world_->PowerOff(i);
      continue;
    }
    world_->PowerOn(i);
    world_->ResumeMachine(i);
    Node& node = world_->node(i);
    for (const auto& shim : node.shims()) {
      shim->keeper().Continue();
      shim->supervisor().Continue();
    }
    world_->network().Cut(i, false, false);
    world_->network().Slow(i, Duration(0));
    node.daemon().process().Continue();
    node.daemon().Start();
    world_->network().CheckSilence(i);
  }
  world_->driver().process().Continue();
  // A coordinator that is just being started would not hear it.
  for (const Duration delay : {Duration(0), Duration(seconds(5)), Duration(seconds(15))}) {
    world_->timeline().After(delay, [this] {
      for (const auto& node : world_->nodes()) {
        world_->driver().Tell(DrainAsked{node->name(), false, "somebody"});
      }
    });
  }
}

}  // namespace trainctl::sim

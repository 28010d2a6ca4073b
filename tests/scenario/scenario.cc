#include "tests/scenario/scenario.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/coordinator/coordinator.h"
#include "tests/scenario/print.h"

namespace trainctl {
namespace {

struct Command {
  std::string verb;
  std::vector<std::string> words;             // arguments without "="
  std::map<std::string, std::string> values;  // the others

  bool Has(const std::string& word) const {
    return std::find(words.begin(), words.end(), word) != words.end();
  }
  std::string Word(size_t i) const { return i < words.size() ? words[i] : ""; }
  std::string Text(const std::string& name, std::string otherwise = "") const {
    const auto it = values.find(name);
    return it == values.end() ? otherwise : it->second;
  }
  int64_t Number(const std::string& name, int64_t otherwise) const {
    int64_t value = otherwise;
    const auto it = values.find(name);
    return it != values.end() && absl::SimpleAtoi(it->second, &value) ? value : otherwise;
  }
  int Int(const std::string& name, int otherwise) const {
    return static_cast<int>(Number(name, otherwise));
  }
};

// Words at blanks, except inside double quotes.
Command ParseCommand(absl::string_view line) {
  std::vector<std::string> tokens(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && i + 1 < line.size() && line[i + 1] == '"') {
      tokens.back().push_back(line[++i]);
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      if (!tokens.back().empty()) tokens.emplace_back();
    } else {
      tokens.back().push_back(c);
    }
  }
  if (tokens.back().empty()) tokens.pop_back();
  Command command;
  if (tokens.empty()) return command;
  command.verb = tokens[0];
  for (size_t i = 1; i < tokens.size(); ++i) {
    const size_t equals = tokens[i].find('=');
    if (equals == std::string::npos) {
      command.words.push_back(tokens[i]);
    } else {
      command.values[tokens[i].substr(0, equals)] =
          absl::StrReplaceAll(tokens[i].substr(equals + 1), {{"\\n", "\n"}});
    }
  }
  return command;
}

Duration ParseDuration(absl::string_view text, Duration otherwise) {
  const bool millis = absl::EndsWith(text, "ms");
  int64_t value = 0;
  if (!absl::SimpleAtoi(text.substr(0, text.size() - std::min<size_t>(text.size(), millis ? 2 : 1)),
                        &value)) {
    return otherwise;
  }
  return millis ? Duration(milliseconds(value)) : Duration(seconds(value));
}

class Player {
 public:
  // The lines that answer the command.
  std::vector<std::string> Play(const Command& command) {
    lines_.clear();
    if (command.verb == "job") {
      SetSpec(command);
    } else if (command.verb == "start" || command.verb == "crash") {
      StartCoordinator(command.verb == "crash");
    } else if (!coordinator_) {
      lines_.push_back("error: no coordinator was started");
    } else if (command.verb == "tick") {
      Tick(ParseDuration(command.Word(0), Duration(0)));
    } else if (command.verb == "mute") {
      asking_.erase(command.Word(0));
    } else if (command.verb == "meet") {
      Meet();
    } else if (command.verb == "view") {
      for (const NodeView& node : coordinator_->View(now_).nodes) lines_.push_back(Print(node));
    } else if (std::optional<Event> event = MakeEvent(command)) {
      TrackStreams(*event);
      Step(*event);
    } else {
      lines_.push_back(absl::StrCat("error: no such command: ", command.verb));
    }
    if (coordinator_) {
      const JobView view = coordinator_->View(now_);
      lines_.push_back(
          absl::StrCat("state ", JobPhaseName(view.phase), ": ", view.explain,
                       coordinator_->dropped_messages() > 0
                           ? absl::StrCat(" [", coordinator_->dropped_messages(), " dropped]")
                           : ""));
    }
    return lines_;
  }

 private:
  static constexpr int64_t kWallEpoch = 1'700'000'000'000'000'000;

  void SetSpec(const Command& c) {
    spec_.job_id = "job-1";
    spec_.command = {"train", "--rank=${local_rank}"};
    spec_.cwd = "/home/u";
    spec_.log_folder = "/logs";
    spec_.min_nodes = c.Int("min_nodes", spec_.min_nodes);
    spec_.max_nodes = std::max(spec_.min_nodes, c.Int("max_nodes", spec_.max_nodes));
    spec_.spares = c.Int("spares", spec_.spares);
    if (const std::string names = c.Text("nodes"); !names.empty()) {
      spec_.nodes = absl::StrSplit(names, ',');
    }
    spec_.ranks_follow_nodes = c.Has("in_order");
    spec_.workers_per_node =
        c.Text("workers") == "all" ? kEverySlot : c.Int("workers", spec_.workers_per_node);
    spec_.restart_window = ParseDuration(c.Text("restart_window"), spec_.restart_window);
    spec_.max_restarts = c.Int("max_restarts", spec_.max_restarts);
    spec_.window_restarts = c.Int("window_restarts", spec_.window_restarts);
    spec_.no_progress_epochs = c.Int("no_progress", spec_.no_progress_epochs);
    spec_.grace = ParseDuration(c.Text("grace"), spec_.grace);
    spec_.lease = ParseDuration(c.Text("lease"), spec_.lease);
    spec_.join_timeout = ParseDuration(c.Text("join_timeout"), spec_.join_timeout);
    spec_.orphan_timeout = ParseDuration(c.Text("orphan_timeout"), seconds(-1));
    spec_.checkpoint_folder = c.Text("checkpoint");
    spec_.checkpoint_keep = c.Int("keep", spec_.checkpoint_keep);
    spec_.preemptible = c.Has("preemptible");
    spec_.propagate_exit_code = c.Has("propagate");
    spec_.requeue_status = c.Has("requeue");
  }

  void StartCoordinator(bool replay) {
    if (replay) asking_.clear();
    if (replay) probes_.clear();
    coordinator_ = std::make_unique<Coordinator>(replay ? Coordinator::Replay(spec_, journal_)
                                                        : Coordinator(spec_));
    ++term_;
    Batch batch;
    coordinator_->Start(now_, Wall(), Term(term_), &batch);
    Show(batch);
  }

  void Step(const Event& event) {
    Batch batch;
    coordinator_->Step(now_, Wall(), event, &batch);
    Show(batch);
  }

  void Show(const Batch& batch) {
    for (const JournalRecord& record : batch.persist) {
      // What is read back is what was encoded, as after a real crash.
      absl::StatusOr<JournalRecord> copy = DecodeRecord(EncodeRecord(record));
      if (!copy.ok()) lines_.push_back(absl::StrCat("error: ", copy.status().ToString()));
      journal_.push_back(copy.ok() ? *copy : record);
      lines_.push_back(absl::StrCat("persist ", Print(record)));
    }
    for (const Action& action : batch.perform) {
      if (const auto* ask = std::get_if<ProbeAddress>(&action)) probes_[ask->node] = *ask;
      if (const auto* refused = std::get_if<RefuseNode>(&action)) {
        const auto asking = asking_.find(refused->node);
        if (asking != asking_.end() && asking->second == refused->incarnation) {
          asking_.erase(asking);
        }
      }
      lines_.push_back(absl::StrCat("do ", Print(action)));
    }
  }

  void Meet() {
    for (const auto& [node, ask] : std::exchange(probes_, {})) {
      AddressesReached reached{node, ask.probe, {}};
      for (const auto& target : ask.targets) reached.reached.push_back({target.address, ""});
      Step(reached);
    }
  }

  // Time passes in small steps; only what differs from "lease granted" is shown.
  void Tick(Duration duration) {
    const Instant end = now_ + duration;
    while (now_ < end) {
      const Instant before = now_;
      now_ = std::min({end, next_ask_, std::max(coordinator_->next_deadline(), before)});
      std::vector<std::string> shown = std::exchange(lines_, {});
      if (now_ == next_ask_) {
        next_ask_ = now_ + spec_.lease / 4;
        for (const auto& [node, incarnation] : asking_) {
          Step(LeaseRequested{node, incarnation, ++request_id_});
        }
        std::erase_if(lines_, [](const std::string& line) {
          return absl::StartsWith(line, "do lease") && absl::StrContains(line, "granted");
        });
      }
      const bool due = coordinator_->next_deadline() <= now_;
      if (due) Step(DeadlineReached{});
      if (!lines_.empty()) shown.push_back(absl::StrCat("at +", Print(now_ - Instant{})));
      shown.insert(shown.end(), lines_.begin(), lines_.end());
      lines_ = std::move(shown);
      if (due && now_ == before && coordinator_->next_deadline() <= now_) {
        lines_.push_back("error: the deadline stays in the past");
        return;
      }
    }
  }

  void TrackStreams(const Event& event) {
    if (const auto* joined = std::get_if<NodeJoined>(&event)) {
      Incarnation& newest = asking_[joined->node];
      newest = std::max(newest, joined->incarnation);
    }
    if (const auto* left = std::get_if<NodeLeft>(&event)) asking_.erase(left->node);
  }

  Epoch EpochOf(const Command& c) const {
    return Epoch(c.Number("epoch", coordinator_->epoch().value));
  }

  std::optional<Event> MakeEvent(const Command& c) const {
    const std::string node = c.Word(0);
    const Incarnation incarnation(c.Number("incarnation", 1));
    if (c.verb == "join") return MakeJoined(c);
    if (c.verb == "leave") return NodeLeft{node, incarnation, c.Text("reason", "stream broken")};
    if (c.verb == "lease") return LeaseRequested{node, incarnation, 1};
    if (c.verb == "started") return WorkersStarted{node, EpochOf(c), c.Int("port", 29600), {}};
    if (c.verb == "gone") return NodeEpochGone{node, EpochOf(c)};
    if (c.verb == "exit") return WorkerExited{node, EpochOf(c), c.Int("rank", 0), MakeExit(c)};
    if (c.verb == "drain") return DrainAsked{node, true, "trainctl nodes"};
    if (c.verb == "undrain") return DrainAsked{node, false, "trainctl nodes"};
    if (c.verb == "suspect") {
      return HangSuspected{node, EpochOf(c), c.Int("rank", 0), trainctl::Step(c.Number("step", 0)),
                           c.Text("reason", "has not completed a step for 60.0 s")};
    }
    if (c.verb == "diagnosed") return MakeDiagnosed(c);
    if (c.verb == "unfit") return NodeUnfit{node, EpochOf(c), c.Text("reason", "pid 8, state D")};
    if (c.verb == "gpu_fault") {
      return GpuFaulted{node,
                        EpochOf(c),
                        c.Int("local_rank", 0),
                        c.Text("text", "GPU0: Xid 79 (GPU has fallen off the bus)"),
                        c.Has("hardware") || c.Has("unfit"),
                        c.Has("unfit")};
    }
    if (c.verb == "reached") return MakeReached(c);
    if (c.verb == "watch") return FrontEndsChanged{static_cast<int>(First(c))};
    if (c.verb == "stop")
      return StopAsked{c.Text("by", "Ctrl-C"), c.Has("checkpoint"), c.Has("now"), c.Has("notice")};
    if (c.verb == "step") {
      return StepReached{EpochOf(c), trainctl::Step(First(c)),
                         trainctl::Step(c.Number("total", 0))};
    }
    if (c.verb == "shard") {
      const int rank = c.Int("rank", 0);
      return ShardPrepared{EpochOf(c),
                           trainctl::Step(First(c)),
                           {rank, absl::StrCat("shard-", rank), 100, "xxh3-128:0"}};
    }
    if (c.verb == "published") {
      return CheckpointPublished{EpochOf(c), trainctl::Step(First(c))};
    }
    if (c.verb == "rejected") {
      return CheckpointRejected{EpochOf(c), trainctl::Step(First(c)), "shard 0: digest differs"};
    }
    if (c.verb == "found") {
      CheckpointsFound found;
      for (const std::string& word : c.words) {
        int64_t step = 0;
        if (absl::SimpleAtoi(word, &step)) found.steps.push_back(trainctl::Step(step));
      }
      return found;
    }
    return std::nullopt;
  }

  static int64_t First(const Command& c) {
    int64_t value = 0;
    return absl::SimpleAtoi(c.Word(0), &value) ? value : -1;
  }

  // diagnosed n1 rank=0 steps=7,6 collectives=9,8 waits=0 stopped=1: of ranks 0, 1, …
  WorkersDiagnosed MakeDiagnosed(const Command& c) const {
    WorkersDiagnosed diagnosed{c.Word(0), EpochOf(c), {}};
    const std::vector<std::string> steps = absl::StrSplit(c.Text("steps", "0"), ',');
    const std::vector<std::string> entered = absl::StrSplit(c.Text("collectives", "0"), ',');
    const std::vector<std::string> waits = absl::StrSplit(c.Text("waits"), ',');
    const std::vector<std::string> stopped = absl::StrSplit(c.Text("stopped"), ',');
    const auto listed = [](const std::vector<std::string>& list, const std::string& rank) {
      return std::find(list.begin(), list.end(), rank) != list.end();
    };
    for (size_t i = 0; i < steps.size(); ++i) {
      RankEvidence e;
      e.rank = c.Int("rank", 0) + static_cast<int>(i);
      const std::string rank = absl::StrCat(e.rank);
      e.phase = "backward";
      e.in_phase = seconds(61);
      int64_t step = 0;
      if (absl::SimpleAtoi(steps[i], &step)) e.step = trainctl::Step(step);
      if (i < entered.size()) (void)absl::SimpleAtoi(entered[i], &e.collectives);
      e.in_collective = listed(waits, rank);
      e.stopped = listed(stopped, rank);
      e.collective = "all-reduce of 4096 bytes";
      diagnosed.ranks.push_back(std::move(e));
    }
    return diagnosed;
  }

  static WorkerExit MakeExit(const Command& c) {
    WorkerExit exit;
    exit.code = c.Int("code", 0);
    if (c.values.contains("signal")) {
      exit.kind = WorkerExit::Kind::kSignaled;
      exit.code = c.Int("signal", 0);
    }
    if (c.values.contains("errno")) {
      exit.kind = WorkerExit::Kind::kSpawnFailed;
      exit.code = c.Int("errno", 0);
    }
    if (c.Has("lost")) exit.kind = WorkerExit::Kind::kLost;
    exit.by_us = c.Has("by_us");
    exit.exit_ns = c.Number("at", 0);
    exit.message = c.Text("message");
    exit.output_tail = c.Text("tail");
    exit.error_json = c.Text("json");
    return exit;
  }

  AddressesReached MakeReached(const Command& c) const {
    const auto ask = probes_.find(c.Word(0));
    const int64_t probe = ask == probes_.end() ? 0 : static_cast<int64_t>(ask->second.probe);
    AddressesReached reached{c.Word(0), static_cast<uint64_t>(c.Number("probe", probe)), {}};
    for (size_t i = 1; i < c.words.size(); ++i) {
      const std::vector<std::string> parts = absl::StrSplit(c.words[i], '/');
      reached.reached.push_back({parts[0], parts.size() > 1 ? parts[1] : ""});
    }
    return reached;
  }

  NodeJoined MakeJoined(const Command& c) const {
    NodeJoined joined;
    joined.node = c.Word(0);
    joined.incarnation = Incarnation(c.Number("incarnation", 1));
    int nic = 0;
    for (const absl::string_view address : absl::StrSplit(c.Text("address", "127.0.0.1"), ',')) {
      joined.addresses.push_back({absl::StrCat("eth", nic++), std::string(address)});
    }
    joined.machine = c.Text("machine");
    joined.topology = c.Text("topology");
    joined.node_rank = c.Int("node_rank", -1);
    joined.cores = c.Int("cores", 8);
    joined.unfit = c.Text("unfit");
    joined.slots = joined.unfit.empty() ? c.Int("slots", 8) : 0;
    joined.reserved_port = c.Int("port", 29500);
    joined.term = Term(c.Number("term", 0));
    joined.epoch = Epoch(c.Number("epoch", -1));
    joined.gone = !c.Has("alive");
    for (const absl::string_view rank : absl::StrSplit(c.Text("running"), ',', absl::SkipEmpty())) {
      WorkerState worker;
      worker.running = absl::SimpleAtoi(rank, &worker.rank);
      joined.workers.push_back(worker);
    }
    for (const absl::string_view item : absl::StrSplit(c.Text("exited"), ',', absl::SkipEmpty())) {
      const std::vector<std::string> parts = absl::StrSplit(item, ':');
      WorkerState worker;
      if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &worker.rank) &&
          absl::SimpleAtoi(parts[1], &worker.exit.code)) {
        joined.workers.push_back(worker);
      }
    }
    return joined;
  }

  int64_t Wall() const { return kWallEpoch + now_.ns; }

  JobSpec spec_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<JournalRecord> journal_;
  Instant now_;
  Instant next_ask_;
  int64_t term_ = 0;
  uint64_t request_id_ = 0;
  std::map<std::string, Incarnation> asking_;
  std::map<std::string, ProbeAddress> probes_;  // not answered yet
  std::vector<std::string> lines_;
};

}  // namespace

std::string PlayScenario(const std::string& text) {
  Player player;
  std::string out;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    if (absl::StartsWith(line, "  ")) continue;  // an answer, made anew
    absl::StrAppend(&out, line, "\n");
    if (!absl::StartsWith(line, "> ")) continue;
    for (const std::string& answer : player.Play(ParseCommand(line.substr(2)))) {
      absl::StrAppend(&out, "  ", answer, "\n");
    }
  }
  return out;
}

}  // namespace trainctl

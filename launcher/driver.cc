#include "launcher/driver.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/wire.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

constexpr size_t kMaxSpecBytes = 8 << 20;
constexpr int kJournalStatus = 4;  // of this process
// After a batch could not be made durable: the daemon's next coordinator finds out why.
constexpr Duration kReportDelay = milliseconds(500);

LogLevel LogLevelOf(Announce::Level level) {
  switch (level) {
    case Announce::Level::kInfo:
      return LogLevel::kInfo;
    case Announce::Level::kWarning:
      return LogLevel::kWarning;
    case Announce::Level::kError:
      return LogLevel::kError;
  }
  return LogLevel::kError;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Driver>> Driver::Open(Loop* loop, const std::string& job_folder) {
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadFile(JoinPath(job_folder, "spec.pb"), kMaxSpecBytes));
  ASSIGN_OR_RETURN(JobSpec spec, DecodeSpec(bytes));
  if (spec.job_folder != job_folder) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job in ", job_folder, " was made for ", spec.job_folder,
                     "; a job's folder must not be moved while it is to run"));
  }
  ASSIGN_OR_RETURN(Journal journal, Journal::Open(JoinPath(job_folder, "journal")));
  return std::unique_ptr<Driver>(new Driver(loop, std::move(spec), std::move(journal)));
}

Driver::Driver(Loop* loop, JobSpec spec, Journal journal)
    : loop_(loop),
      spec_(std::move(spec)),
      journal_(std::move(journal)),
      term_(journal_.next_term()),
      coordinator_(Coordinator::Replay(spec_, journal_.records())),
      report_(spec_),
      transports_(spec_),
      nodes_(term_,
             {[this](const v1::NodeState& state) { OnJoined(state); },
              [this](const std::string& node, Incarnation incarnation) {
                watchers_.NodeHere(node, false);
                ContinueEnding();
                Tell(NodeLeft{node, incarnation, "its stream broke"});
              },
              [this](const std::string& node, Incarnation incarnation, v1::NodeMessage message) {
                OnMessage(node, incarnation, std::move(message));
              }}),
      watchers_({[this] { return State(); }, [this](int owners) { Tell(FrontEndsChanged{owners}); },
                 [this] { ContinueEnding(); },
                 [this](const std::vector<OutputFlow::Ask>& asks) { AskForOutput(asks); }}) {
  const EpochFormed* last = nullptr;
  for (const JournalRecord& record : journal_.records()) {
    report_.Take(record, kNever);
    finished_before_ = finished_before_ || std::holds_alternative<Finished>(record);
    const auto* formed = std::get_if<EpochFormed>(&record);
    if (formed == nullptr) continue;
    last = formed;
    shares_ = formed->nodes;
    // A front end may still be reading what an earlier epoch said last.
    watchers_.OpenEpoch(formed->epoch, RanksOf(*formed));
  }
  if (last == nullptr) return;
  // The rendezvous of the living epoch goes on: its nodes publish again.
  std::vector<std::string> node_of_rank;
  for (const RankPlace& place : RanksOf(*last)) node_of_rank.push_back(place.node);
  store_.Open(last->epoch, std::move(node_of_rank));
}

void Driver::Begin(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  stepping_ = true;
  Batch batch;
  coordinator_.Start(Now(), WallClockNanos(), term_, &batch);
  Perform(batch);
  stepping_ = false;
  Pump();
}

// One event at a time: what an action leads to comes after the batch that it is part of.
void Driver::Tell(Event event) {
  waiting_.push_back(std::move(event));
  if (!stepping_) Pump();
}

void Driver::Pump() {
  stepping_ = true;
  for (size_t i = 0; i < waiting_.size() && !failed_; ++i) {
    const Event next = std::move(waiting_[i]);
    Batch batch;
    coordinator_.Step(Now(), WallClockNanos(), next, &batch);
    Perform(batch);
  }
  waiting_.clear();
  stepping_ = false;
  ArmTimer();
}

void Driver::Perform(const Batch& batch) {
  if (failed_) return;
  if (!batch.persist.empty()) {
    if (const absl::Status status = journal_.Append(batch.persist); !status.ok()) {
      return Fail(status);
    }
  }
  const Instant now = Now();
  for (const JournalRecord& record : batch.persist) {
    report_.Take(record, now);
    if (const auto* epoch = std::get_if<EpochFormed>(&record)) {
      workers_.clear();
      shares_ = epoch->nodes;
      watchers_.OpenEpoch(epoch->epoch, RanksOf(*epoch));
    }
  }
  for (const Action& action : batch.perform) {
    std::visit([this](const auto& a) { Do(a); }, action);
  }
  if (batch.persist.empty()) return;
  ShowState();
  // Off the path of a launch or a restart.
  loop_->Cancel(report_timer_);
  if (!outcome_.has_value()) {
    report_timer_ = loop_->After(kReportDelay, [this] { WriteReport(); });
  }
}

// Without its journal a coordinator must not act. Workers go on; the next one tells why it cannot
// start, if it is the disk.
void Driver::Fail(const absl::Status& status) {
  failed_ = true;
  LogError("make a decision durable: ", status.message());
  v1::JobUpdate update;
  update.mutable_announcement()->set_level(v1::Announcement::ERROR);
  update.mutable_announcement()->set_text(
      ValidUtf8(absl::StrCat("the journal of the job cannot be written: ", status.message())));
  watchers_.Tell(update);
  loop_->Quit(kJournalStatus);
}

// ---- Actions

void Driver::Do(const StartWorkers& action) {
  v1::NodeOrder order;
  *order.mutable_start() = ToProto(action);
  if (const TransportPlan* plan = transports_.PlanFor(action.epoch, shares_)) {
    for (const std::string& setting : transports_.Settings()) {
      order.mutable_start()->add_defaults(setting);
    }
    for (std::string& problem : transports_.TakeNews()) {
      Do(Announce{Announce::Level::kWarning, std::move(problem)});
    }
    report_.Plan(JsonText(PlanDocument(*plan)));
  }
  nodes_.Send(action.node, std::move(order));
}

void Driver::Do(const StopWorkers& action) {
  v1::NodeOrder order;
  order.mutable_stop()->set_epoch(action.epoch.value);
  order.mutable_stop()->set_grace_ns(action.grace.count());
  order.mutable_stop()->set_abort(action.abort);
  nodes_.Send(action.node, std::move(order));
}

void Driver::Do(const DiagnoseWorkers& action) {
  v1::NodeOrder order;
  order.mutable_diagnose()->set_epoch(action.epoch.value);
  nodes_.Send(action.node, std::move(order));
}

void Driver::Do(const AnswerLease& action) {
  v1::NodeOrder order;
  order.mutable_lease()->set_request_id(action.request_id);
  order.mutable_lease()->set_granted(action.granted);
  order.mutable_lease()->set_lease_ns(action.lease.count());
  nodes_.Send(action.node, std::move(order));
}

void Driver::Do(const GrantCommit& action) {
  v1::NodeOrder order;
  *order.mutable_grant() = ToProto(action);
  nodes_.Send(action.node, std::move(order));
}

void Driver::Do(const RequestCheckpoint& action) {
  v1::NodeOrder order;
  order.mutable_checkpoint()->set_epoch(action.epoch.value);
  order.mutable_checkpoint()->set_then_stop(action.then_stop);
  nodes_.Send(action.node, std::move(order));
}

void Driver::Do(const ProbeAddress& action) {
  v1::NodeOrder order;
  v1::ProbeAddresses* probe = order.mutable_probe();
  probe->set_probe(action.probe);
  probe->set_patience_ns(action.patience.count());
  probe->set_machine(action.machine);
  for (const ProbeAddress::Target& target : action.targets) {
    v1::ProbeAddresses::Target* out = probe->add_targets();
    out->set_address(target.address);
    out->set_port(target.port);
  }
  nodes_.Send(action.node, std::move(order));
}

void Driver::Do(const RefuseNode& action) { nodes_.Refuse(action); }

void Driver::Do(const FindCheckpoints&) {
  CheckpointsFound found;
  const absl::StatusOr<std::vector<Step>> steps = ListCheckpoints(spec_.checkpoint_folder);
  if (!steps.ok()) {
    Do(Announce{Announce::Level::kWarning,
                absl::StrCat("looking for checkpoints: ", steps.status().message())});
  } else {
    for (const Step step : *steps) {
      const absl::StatusOr<FoundCheckpoint> opened = OpenCheckpoint(spec_.checkpoint_folder, step);
      if (opened.ok()) {
        found.steps.push_back(step);
      } else {
        Do(Announce{Announce::Level::kWarning,
                    absl::StrCat("checkpoint of step ", step.value,
                                 " is not used: ", opened.status().message())});
      }
    }
  }
  Tell(std::move(found));
}

void Driver::Do(const OpenStore& action) { store_.Open(action.epoch, action.node_of_rank); }

void Driver::Do(const Announce& action) {
  v1::JobUpdate update;
  update.mutable_announcement()->set_level(
      static_cast<v1::Announcement::Level>(static_cast<int>(action.level)));
  update.mutable_announcement()->set_text(ValidUtf8(action.text));
  watchers_.Tell(update);
  Log(LogLevelOf(action.level), action.text);
}

// ---- What nodes tell

void Driver::RememberWorkers(const std::vector<WorkerState>& workers) {
  for (const WorkerState& worker : workers) workers_[worker.rank] = worker;
}

void Driver::OnJoined(const v1::NodeState& state) {
  NodeJoined joined = FromProto(state);
  transports_.Remember(joined.node, state.devices());
  if (joined.epoch == coordinator_.epoch()) RememberWorkers(joined.workers);
  // First, because what the node tells may end the job, which waits for the output of nodes that
  // are here.
  watchers_.NodeHere(state.node(), true);
  Tell(joined);
  Publish(state.node(), {state.exchanges().begin(), state.exchanges().end()});
}

void Driver::OnMessage(const std::string& node, Incarnation incarnation, v1::NodeMessage message) {
  const Instant now = Now();
  if (message.has_output()) {
    watchers_.Output(node, std::move(*message.mutable_output()));
    return OutputCame();
  }
  if (message.has_exchange()) return Publish(node, {message.exchange()});
  if (message.has_lease() && message.lease().request_id() == 0) {
    return Do(AnswerLease{node, 0, true, Duration(0)});
  }
  if (message.has_metric()) {
    report_.Metric(message.metric().name(), message.metric().value());
    v1::JobUpdate update;
    *update.mutable_metric() = message.metric();
    return watchers_.Tell(update);
  }
  if (message.has_note() && message.note().rank() < 0) {  // of the node itself
    return Do(Announce{Announce::Level::kInfo, message.note().text()});
  }
  if (message.has_note()) {
    v1::JobUpdate update;
    *update.mutable_note() = message.note();
    const int rank = message.note().rank();
    if (rank < 0) {
      update.mutable_note()->set_text(absl::StrCat("node ", node, ": ", message.note().text()));
    }
    LogInfo(rank < 0 ? "" : absl::StrCat("rank ", rank, ": "), update.note().text());
    return watchers_.Tell(update);
  }
  std::optional<Event> event = EventFrom(node, incarnation, message);
  if (message.has_progress()) OnProgress(message.progress());
  if (!event.has_value()) return;
  if (const auto* started = std::get_if<WorkersStarted>(&*event)) {
    RememberWorkers(started->workers);
    report_.Spawned(started->epoch, now);
  } else if (const auto* exited = std::get_if<WorkerExited>(&*event)) {
    WorkerState& worker = workers_[exited->rank];
    worker.rank = exited->rank;
    worker.running = false;
    worker.exit = exited->exit;
  } else if (const auto* gone = std::get_if<NodeEpochGone>(&*event)) {
    report_.Gone(gone->epoch, now);
  }
  Tell(*event);
}

void Driver::AskForOutput(const std::vector<OutputFlow::Ask>& asks) {
  std::map<std::string, v1::NodeOrder> orders;
  for (const OutputFlow::Ask& ask : asks) {
    v1::OutputFrom* from = orders[ask.node].mutable_output()->add_logs();
    from->set_epoch(ask.log.epoch.value);
    from->set_rank(ask.log.rank);
    from->set_stream(static_cast<uint32_t>(ask.log.stream));
    from->set_offset(ask.offset);
    from->set_limit(ask.limit);
  }
  for (auto& [node, order] : orders) nodes_.Send(node, std::move(order));
}

void Driver::OnProgress(const v1::Progress& progress) {
  if (progress.rank() != 0) return;
  v1::JobUpdate update;
  *update.mutable_progress() = progress;
  const Instant first_step =
      progress.first_step_ns() > 0 ? Instant{progress.first_step_ns()} : kNever;
  report_.Progress(std::get<ProgressSeen>(*FromProto(update)), first_step, Now());
  update.mutable_progress()->set_samples_per_second(report_.samples_per_second());
  watchers_.TellIfPrompt(update);
}

void Driver::Publish(const std::string& node, const std::vector<v1::Exchange>& exchanges) {
  std::vector<Store::Publication> publications;
  for (const v1::Exchange& exchange : exchanges) {
    publications.push_back({Epoch(exchange.epoch()), exchange.rank(), exchange.name(),
                            exchange.value(), Duration(exchange.timeout_ns())});
  }
  if (publications.empty()) return;
  SendAnswers(store_.Publish(Now(), node, publications));
  if (store_.last_completed() != kNever) {
    report_.Connected(store_.epoch(), store_.last_completed());
  }
  ArmTimer();
}

void Driver::SendAnswers(const std::vector<Store::Answer>& answers) {
  for (const Store::Answer& answer : answers) {
    v1::NodeOrder order;
    v1::ExchangeDone* done = order.mutable_exchange();
    done->set_epoch(store_.epoch().value);
    done->set_name(answer.name);
    for (const std::string& value : answer.values) done->add_values(value);
    done->set_error(ValidUtf8(answer.error));
    nodes_.Send(answer.node, std::move(order));
  }
}

void Driver::ShowState() {
  v1::JobUpdate update;
  *update.mutable_state() = State();
  watchers_.TellIfPrompt(update);
}

// ---- Time and the report

void Driver::ArmTimer() {
  loop_->Cancel(timer_);
  const Instant next = std::min(coordinator_.next_deadline(), store_.next_deadline());
  if (next == kNever || failed_) return;
  timer_ = loop_->At(next, [this] { OnTimer(); });
}

void Driver::OnTimer() {
  SendAnswers(store_.Expire(Now()));
  if (coordinator_.next_deadline() <= Now()) {
    Tell(DeadlineReached{});
  } else {
    ArmTimer();
  }
}

void Driver::WriteReport() {
  if (const absl::Status status = report_.Write(WallClockNanos()); !status.ok()) {
    Do(Announce{Announce::Level::kWarning, absl::StrCat("write the report: ", status.message())});
  }
}

}  // namespace trainctl

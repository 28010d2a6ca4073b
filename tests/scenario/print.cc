#include "tests/scenario/print.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace trainctl {
namespace {

std::string Ranks(const std::vector<RankPlace>& ranks) {
  return absl::StrJoin(ranks, ",", [](std::string* out, const RankPlace& place) {
    absl::StrAppend(out, place.rank, ":", place.node);
  });
}

std::string Steps(const std::vector<Step>& steps) {
  return absl::StrJoin(steps, ",",
                       [](std::string* out, Step step) { absl::StrAppend(out, step.value); });
}

std::string PrintOutcome(const Outcome& outcome) {
  return absl::StrCat(
      OutcomeName(outcome.kind), " exit_status=", outcome.exit_status,
      outcome.failure ? absl::StrCat(" class=\"", FailureClassName(outcome.failure->failure_class),
                                     "\" rank=", outcome.failure->rank)
                      : "",
      ": ", outcome.reason);
}

std::string ValueOf(const std::vector<std::string>& env, absl::string_view name) {
  for (const std::string& entry : env) {
    if (absl::StartsWith(entry, absl::StrCat(name, "="))) return entry.substr(name.size() + 1);
  }
  return "(unset)";
}

struct RecordPrinter {
  std::string operator()(const TermStarted& r) const { return absl::StrCat("term ", r.term.value); }
  std::string operator()(const EpochFormed& r) const {
    return absl::StrCat("formed epoch=", r.epoch.value, " ranks=", Ranks(RanksOf(r)),
                        " master=", r.master_address, ":", r.master_port,
                        " resume=", r.resume_step.value, ": ", r.reason);
  }
  std::string operator()(const EpochStarted& r) const {
    return absl::StrCat("started epoch=", r.epoch.value);
  }
  std::string operator()(const EpochReplaced& r) const {
    return absl::StrCat("replaced epoch=", r.epoch.value, " last_step=", r.last_step.value, ": ",
                        r.reason);
  }
  std::string operator()(const NodeDrained& r) const {
    return absl::StrCat(r.drained ? "drained " : "undrained ", r.node);
  }
  std::string operator()(const NodeLost& r) const {
    return absl::StrCat("lost ", r.node, " epoch=", r.epoch.value);
  }
  std::string operator()(const EpochCondemned& r) const {
    return absl::StrCat("condemned epoch=", r.epoch.value, " class=\"",
                        FailureClassName(r.failure.failure_class), "\" rank=", r.failure.rank,
                        " last_step=", r.last_step.value, ": ", r.failure.reason);
  }
  std::string operator()(const CommitGranted& r) const {
    return absl::StrCat("granted epoch=", r.epoch.value, " step=", r.step.value);
  }
  std::string operator()(const CheckpointCommitted& r) const {
    return absl::StrCat("committed epoch=", r.epoch.value, " step=", r.step.value);
  }
  std::string operator()(const CheckpointDropped& r) const {
    return absl::StrCat("dropped step=", r.step.value, r.damaged ? " damaged: " : ": ", r.reason);
  }
  std::string operator()(const Stopping& r) const {
    return absl::StrCat("stopping", r.preempted ? " preempted" : "",
                        r.checkpoint ? " checkpoint" : "", ": ", r.reason);
  }
  std::string operator()(const Finished& r) const {
    return absl::StrCat("finished ", PrintOutcome(r.outcome));
  }
};

struct ActionPrinter {
  std::string operator()(const StartWorkers& a) const {
    std::vector<int> ranks;
    for (const WorkerLaunch& worker : a.workers) ranks.push_back(worker.rank);
    return absl::StrCat(
        "start ", a.node, " epoch=", a.epoch.value, " world=", a.world_size,
        " ranks=", absl::StrJoin(ranks, ","), " master=", ValueOf(a.env, "MASTER_ADDR"), ":",
        ValueOf(a.env, "MASTER_PORT"), " resume=\"", ValueOf(a.env, "TRAINCTL_RESUME_FROM"), "\"");
  }
  std::string operator()(const StopWorkers& a) const {
    return absl::StrCat("stop ", a.node, " epoch=", a.epoch.value, " grace=", Print(a.grace),
                        a.abort ? " abort" : "");
  }
  std::string operator()(const DiagnoseWorkers& a) const {
    return absl::StrCat("diagnose ", a.node, " epoch=", a.epoch.value);
  }
  std::string operator()(const AnswerLease& a) const {
    return absl::StrCat("lease ", a.node, a.granted ? " granted " : " refused ", Print(a.lease));
  }
  std::string operator()(const GrantCommit& a) const {
    return absl::StrCat("grant ", a.node, " epoch=", a.epoch.value, " step=", a.step.value,
                        " shards=", a.shards.size(), " may_delete=", Steps(a.may_delete));
  }
  std::string operator()(const RequestCheckpoint& a) const {
    return absl::StrCat("checkpoint ", a.node, " epoch=", a.epoch.value,
                        a.then_stop ? " then_stop" : "");
  }
  std::string operator()(const ProbeAddress& a) const {
    return absl::StrCat("probe ", a.node, " ",
                        absl::StrJoin(a.targets, ",", [](std::string* out, const auto& target) {
                          absl::StrAppend(out, target.address, ":", target.port);
                        }));
  }
  std::string operator()(const RefuseNode& a) const {
    return absl::StrCat("refuse ", a.node, " incarnation=", a.incarnation.value, ": ", a.reason);
  }
  std::string operator()(const FindCheckpoints&) const { return "find_checkpoints"; }
  std::string operator()(const ReleaseNode& a) const { return absl::StrCat("release ", a.node); }
  std::string operator()(const OpenStore& a) const {
    return absl::StrCat("open_store epoch=", a.epoch.value, " world=", a.node_of_rank.size());
  }
  std::string operator()(const Announce& a) const {
    const char* level = a.level == Announce::Level::kInfo      ? "info"
                        : a.level == Announce::Level::kWarning ? "warning"
                                                               : "error";
    return absl::StrCat("say ", level, ": ", a.text);
  }
  std::string operator()(const FinishJob& a) const {
    return absl::StrCat("finish ", PrintOutcome(a.outcome));
  }
};

}  // namespace

std::string Print(const JournalRecord& record) { return std::visit(RecordPrinter(), record); }
std::string Print(const Action& action) { return std::visit(ActionPrinter(), action); }
std::string Print(const NodeView& node) {
  return absl::StrCat("node ", node.node, " ", NodeStandingName(node.standing),
                      node.workers > 0 ? absl::StrCat(" workers=", node.workers) : "", " since +",
                      Print(node.since - Instant{}),
                      node.reason.empty() ? "" : absl::StrCat(": ", node.reason));
}
std::string Print(Duration duration) { return absl::StrFormat("%gs", ToSeconds(duration)); }

}  // namespace trainctl

#include "launcher/event_text.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

// One record as both forms need it.
struct Told {
  const char* kind;
  int64_t wall_ns = 0;  // 0: it has none
  int64_t epoch = -1;   // -1: of no epoch
  int64_t step = -1;    // -1: of no step
  std::string text;
  std::string failure_class = {};
  std::string node = {};
  int rank = -1;
};

std::string StepText(Step step) {
  return step < Step(0) ? "the beginning" : absl::StrCat("step ", step.value);
}

struct Teller {
  Told operator()(const TermStarted& r) const {
    return {"coordinator", 0, -1, -1,
            r.term == Term(1)
                ? "the coordinator started"
                : absl::StrCat("the coordinator was started again, term ", r.term.value)};
  }
  Told operator()(const EpochFormed& r) const {
    return {"formed", r.wall_ns, r.epoch.value, r.resume_step.value,
            absl::StrCat("epoch ", r.epoch.value, ": ", r.world_size(), " workers on ",
                         r.nodes.size(), r.nodes.size() == 1 ? " node" : " nodes", ", from ",
                         StepText(r.resume_step), ": ", r.reason)};
  }
  Told operator()(const EpochStarted& r) const {
    return {"started", 0, r.epoch.value, -1,
            absl::StrCat("epoch ", r.epoch.value, ": its first workers were started")};
  }
  Told operator()(const EpochCondemned& r) const {
    return {"failed",
            r.wall_ns,
            r.epoch.value,
            r.last_step.value,
            absl::StrCat("epoch ", r.epoch.value, " failed (",
                         FailureClassName(r.failure.failure_class), ") after ",
                         StepText(r.last_step), ": ", r.failure.reason),
            FailureClassName(r.failure.failure_class),
            r.failure.node,
            r.failure.rank};
  }
  Told operator()(const EpochReplaced& r) const {
    return {"replaced", r.wall_ns, r.epoch.value, r.last_step.value,
            absl::StrCat("epoch ", r.epoch.value, " ended after ", StepText(r.last_step),
                         " to change nodes: ", r.reason)};
  }
  Told operator()(const CommitGranted& r) const {
    return {"granted", 0, r.epoch.value, r.step.value,
            absl::StrCat(StepText(r.step), ": all shards are written")};
  }
  Told operator()(const CheckpointCommitted& r) const {
    return {"committed", 0, r.epoch.value, r.step.value,
            absl::StrCat(StepText(r.step), ": the checkpoint is published")};
  }
  Told operator()(const CheckpointDropped& r) const {
    return {r.damaged ? "damaged" : "dropped", 0, -1, r.step.value,
            absl::StrCat(StepText(r.step),
                         r.damaged ? ": the checkpoint is damaged: "
                                   : ": the checkpoint is no longer kept: ",
                         r.reason)};
  }
  Told operator()(const NodeDrained& r) const {
    return {r.drained ? "drained" : "undrained",
            0,
            -1,
            -1,
            absl::StrCat("node ", r.node, r.drained ? " is drained" : " is no longer drained"),
            "",
            r.node};
  }
  Told operator()(const NodeLost& r) const {
    return {"node_lost", 0,     r.epoch.value, -1, absl::StrCat("node ", r.node, " was lost"),
            "",          r.node};
  }
  Told operator()(const Stopping& r) const {
    return {"stopping", 0, -1, -1,
            absl::StrCat(r.preempted    ? "it is preempted: "
                         : r.checkpoint ? "it is to save and end: "
                                        : "it is to stop: ",
                         r.reason)};
  }
  Told operator()(const Finished& r) const {
    return {"finished", r.wall_ns, -1, -1,
            absl::StrCat(OutcomeName(r.outcome.kind), ", exit status ", r.outcome.exit_status, ": ",
                         r.outcome.reason)};
  }
};

}  // namespace

std::string EventLine(const JournalRecord& record) {
  const auto* dropped = std::get_if<CheckpointDropped>(&record);
  const bool routine =
      std::holds_alternative<CommitGranted>(record) || (dropped != nullptr && !dropped->damaged);
  if (routine) return "";
  const Told told = std::visit(Teller(), record);
  const std::string time =
      told.wall_ns == 0 ? std::string(23, ' ')
                        : absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixNanos(told.wall_ns),
                                           absl::LocalTimeZone());
  return absl::StrCat(time, "  ", told.text, "\n");
}

std::string EventJson(const JournalRecord& record) {
  const Told told = std::visit(Teller(), record);
  Json json = {{"schema", 1}, {"type", "event"}, {"event", told.kind}};
  if (told.wall_ns != 0) {
    json["time"] = absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::FromUnixNanos(told.wall_ns),
                                    absl::UTCTimeZone());
  }
  if (told.epoch >= 0) json["epoch"] = told.epoch;
  if (told.step >= 0) json["step"] = told.step;
  if (!told.node.empty()) json["node"] = told.node;
  if (told.rank >= 0) json["rank"] = told.rank;
  if (!told.failure_class.empty()) json["class"] = told.failure_class;
  json["text"] = told.text;
  return JsonText(json) + "\n";
}

}  // namespace trainctl

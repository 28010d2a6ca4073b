#include "launcher/report.h"

#include <sys/utsname.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "launcher/coordinator/error_json.h"
#include "launcher/report_page.h"
#include "runtime/base/file.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kRateSpan = seconds(5);
constexpr size_t kTailLines = 20;
constexpr uint32_t kInitPhase = 1;  // WorkerPhase::kInit of the worker page

Json WallTime(int64_t wall_ns) {
  if (wall_ns == 0) return nullptr;
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::FromUnixNanos(wall_ns),
                          absl::UTCTimeZone());
}

Json MillisBetween(Instant from, Instant to) {
  if (from == kNever || to == kNever) return nullptr;
  return std::max(ToMillis(to - from), 0.0);
}

double SecondsBetween(int64_t from_ns, int64_t to_ns) {
  return std::max(static_cast<double>(to_ns - from_ns) * 1e-9, 0.0);
}

std::vector<std::string> LastLines(const std::string& text, size_t count) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<long>(count));
  return lines;
}

Json FailureJson(const Failure* failure) {
  if (failure == nullptr) return nullptr;
  const WorkerExit& exit = failure->exit;
  Json json;
  json["rank"] = failure->rank < 0 ? Json() : Json(failure->rank);
  json["node"] = failure->node;
  json["epoch"] = failure->epoch.value;
  json["class"] = FailureClassName(failure->failure_class);
  json["code"] = exit.kind == WorkerExit::Kind::kExited ? Json(exit.code) : Json();
  json["signal"] = exit.kind == WorkerExit::Kind::kSignaled ? Json(exit.code) : Json();
  json["reason"] = failure->reason;
  json["message"] = exit.error_json.empty() ? exit.message : ErrorMessage(exit.error_json);
  json["output_tail"] = exit.output_tail;
  return json;
}

Json RecoveryJson(const EpochMarks& before, const EpochMarks& after, int64_t steps_lost) {
  Json json;
  json["detect_ms"] = MillisBetween(before.failed, before.condemned);
  json["stop_ms"] = MillisBetween(before.condemned, before.gone);
  json["form_ms"] = MillisBetween(before.gone, after.formed);
  json["spawn_ms"] = MillisBetween(after.formed, after.spawned);
  json["connect_ms"] = MillisBetween(after.spawned, after.connected);
  json["load_ms"] =
      MillisBetween(after.connected == kNever ? after.spawned : after.connected, after.loaded);
  json["first_step_ms"] = MillisBetween(after.loaded, after.first_step);
  json["total_ms"] = MillisBetween(before.failed, after.first_step);
  json["steps_lost"] = steps_lost;
  return json;
}

std::string KernelVersion() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "";
}

void KeepFirst(Instant at, Instant* mark) { *mark = std::min(*mark, at); }

}  // namespace

struct Report::Goodput {
  double total = 0;
  double starting = 0;    // from the forming of an epoch to its first step
  double redone = 0;      // steps that a later epoch did again
  double recovering = 0;  // from a condemnation to the next epoch
  // The same seconds, by the class of the failure that cost them; the first start is nobody's.
  std::map<std::string, double> by_cause;
};

Report::Report(const JobSpec& spec) : spec_(spec), plan_(spec.transport_plan) {}

Report::EpochStory* Report::Find(Epoch epoch) {
  const auto found = std::find_if(epochs_.begin(), epochs_.end(), [epoch](const EpochStory& story) {
    return story.formed.epoch == epoch;
  });
  return found == epochs_.end() ? nullptr : &*found;
}

void Report::Take(const JournalRecord& record, Instant now) {
  if (const auto* formed = std::get_if<EpochFormed>(&record)) {
    epochs_.emplace_back();
    epochs_.back().formed = *formed;
    epochs_.back().marks.formed = now;
  } else if (const auto* condemned = std::get_if<EpochCondemned>(&record)) {
    EpochStory* story = Find(condemned->epoch);
    if (story == nullptr) return;
    const bool first = !story->condemned.has_value();
    story->condemned = *condemned;
    if (now == kNever) return;
    if (first) story->marks.condemned = now;
    const int64_t exit_ns = condemned->failure.exit.exit_ns;
    story->marks.failed = exit_ns > 0 ? Instant{exit_ns} : story->marks.condemned;
  } else if (const auto* replaced = std::get_if<EpochReplaced>(&record)) {
    EpochStory* story = Find(replaced->epoch);
    if (story == nullptr) return;
    story->replaced = *replaced;
    if (now != kNever) story->marks.condemned = story->marks.failed = now;
  } else if (const auto* committed = std::get_if<CheckpointCommitted>(&record)) {
    std::erase(checkpoints_, committed->step);
    checkpoints_.push_back(committed->step);
  } else if (const auto* dropped = std::get_if<CheckpointDropped>(&record)) {
    std::erase(checkpoints_, dropped->step);
  } else if (const auto* finished = std::get_if<Finished>(&record)) {
    finished_ = *finished;
  }
}

void Report::Spawned(Epoch epoch, Instant at) {
  EpochStory* story = Find(epoch);
  if (story == nullptr) return;
  // Of several nodes, the last one to start its workers counts.
  story->marks.spawned = story->marks.spawned == kNever ? at : std::max(story->marks.spawned, at);
}

void Report::Gone(Epoch epoch, Instant at) {
  EpochStory* story = Find(epoch);
  if (story == nullptr || (!story->condemned && !story->replaced)) return;
  story->marks.gone = story->marks.gone == kNever ? at : std::max(story->marks.gone, at);
}

void Report::Connected(Epoch epoch, Instant at) {
  EpochStory* story = Find(epoch);
  if (story != nullptr && story->marks.first_step == kNever) story->marks.connected = at;
}

void Report::Progress(const ProgressSeen& progress, Instant first_step, Instant now) {
  EpochStory* story = Find(progress.epoch);
  if (story == nullptr) return;
  last_progress_ = progress;
  if (progress.phase > kInitPhase) {
    KeepFirst(first_step == kNever ? now : std::min(first_step, now), &story->marks.loaded);
  }
  if (first_step != kNever && story->marks.first_step == kNever) {
    story->marks.first_step = first_step;
    // Instants are of this life of the coordinator; an epoch of an earlier one has none.
    if (story->marks.formed != kNever) {
      story->first_step_wall_ns =
          story->formed.wall_ns + (first_step - story->marks.formed).count();
    }
  }
  story->last_step = std::max(story->last_step, Step(static_cast<int64_t>(progress.step)));
  // Samples of earlier epochs, which appear when the checkpoint is loaded, are nobody's rate.
  if (progress.phase <= kInitPhase && story->formed.resume_step > Step(0)) return;
  auto& samples = story->samples;
  if (story->first_samples.first == kNever) story->first_samples = {now, progress.samples};
  // What is read after the last step, while the model is evaluated, is no part of the rate.
  if (progress.samples != story->last_samples.second) story->last_samples = {now, progress.samples};
  samples.emplace_back(now, progress.samples);
  const auto old = std::find_if(samples.begin(), samples.end(), [now](const auto& entry) {
    return entry.first >= now - kRateSpan;
  });
  samples.erase(samples.begin(), old);
  if (story->marks.formed == kNever) return;
  const double seconds = SecondsBetween(epochs_.front().formed.wall_ns, story->formed.wall_ns) +
                         ToSeconds(now - story->marks.formed);
  series_.Add({seconds, progress.epoch.value, progress.step, progress.loss, samples_per_second()});
}

double Report::samples_per_second() const {
  if (epochs_.empty() || epochs_.back().samples.size() < 2) return 0;
  const auto& [from, before] = epochs_.back().samples.front();
  const auto& [to, after] = epochs_.back().samples.back();
  if (to <= from || after < before) return 0;
  return static_cast<double>(after - before) / ToSeconds(to - from);
}

double Report::EpochRate() const {
  if (epochs_.empty()) return 0;
  const EpochStory& story = epochs_.back();
  auto [from, before] = story.first_samples;
  const auto& [to, after] = story.last_samples;
  const uint64_t steps = static_cast<uint64_t>(std::max<int64_t>(story.last_step.value, 0));
  const uint64_t first =
      static_cast<uint64_t>(std::max<int64_t>(story.formed.resume_step.value, 0)) + 1;
  // A short run is read once, at its end; its first step has a time of its own.
  if (from == to && story.marks.first_step < to && steps > first) {
    from = story.marks.first_step;
    before = after * first / steps;
  }
  if (from == kNever || to <= from || after < before) return 0;
  return static_cast<double>(after - before) / ToSeconds(to - from);
}

const Failure* Report::FirstFailure() const {
  for (const EpochStory& story : epochs_) {
    if (story.condemned.has_value()) return &story.condemned->failure;
  }
  if (finished_.has_value() && finished_->outcome.failure.has_value()) {
    return &*finished_->outcome.failure;
  }
  return nullptr;
}

int64_t Report::EndOf(size_t index, int64_t wall_ns) const {
  const EpochStory& story = epochs_[index];
  if (story.condemned.has_value()) return story.condemned->wall_ns;
  if (story.replaced.has_value()) return story.replaced->wall_ns;
  if (index + 1 < epochs_.size()) return epochs_[index + 1].formed.wall_ns;
  return finished_.has_value() ? finished_->wall_ns : wall_ns;
}

std::string Report::CauseOfEnd(const EpochStory& story) {
  if (story.condemned.has_value()) return FailureClassName(story.condemned->failure.failure_class);
  return story.replaced.has_value() ? "change of nodes" : "other";
}

Report::Goodput Report::CountGoodput(int64_t wall_ns) const {
  Goodput goodput;
  if (epochs_.empty()) return goodput;
  const int64_t end = finished_.has_value() ? finished_->wall_ns : wall_ns;
  goodput.total = SecondsBetween(epochs_.front().formed.wall_ns, end);
  std::string cause = "starting";
  const auto lose = [&](double seconds, double* kind) {
    *kind += seconds;
    goodput.by_cause[cause] += seconds;
  };
  for (size_t i = 0; i < epochs_.size(); ++i) {
    const EpochStory& story = epochs_[i];
    const int64_t ended = EndOf(i, wall_ns);
    const int64_t began =
        story.first_step_wall_ns == 0 ? story.formed.wall_ns : story.first_step_wall_ns;
    lose(SecondsBetween(story.formed.wall_ns, began), &goodput.starting);
    cause = CauseOfEnd(story);
    if (i + 1 == epochs_.size()) {
      if (story.condemned || story.replaced) lose(SecondsBetween(ended, end), &goodput.recovering);
      continue;
    }
    const EpochStory& next = epochs_[i + 1];
    lose(SecondsBetween(ended, next.formed.wall_ns), &goodput.recovering);
    const int64_t start = std::max<int64_t>(story.formed.resume_step.value, 0);
    const int64_t done = story.last_step.value - start;
    const int64_t kept = std::clamp<int64_t>(next.formed.resume_step.value - start, 0, done);
    if (done > 0) {
      lose(SecondsBetween(began, ended) * static_cast<double>(done - kept) /
               static_cast<double>(done),
           &goodput.redone);
    }
  }
  return goodput;
}

std::string Report::path() const { return JoinPath(spec_.job_folder, "report.json"); }

absl::Status Report::Write(int64_t wall_ns) const {
  return WriteFileAtomically(path(), Json(wall_ns));
}

absl::Status Report::WritePages(int64_t wall_ns) const {
  return WriteReportPages(spec_.job_folder, Json(wall_ns));
}

std::string Report::Json(int64_t wall_ns) const {
  trainctl::Json json;
  json["schema"] = 1;
  json["job"] = spec_.job_id;
  json["name"] = spec_.name;
  if (finished_.has_value()) {
    json["outcome"] = OutcomeName(finished_->outcome.kind);
    json["exit_status"] = finished_->outcome.exit_status;
    json["reason"] = finished_->outcome.reason;
  } else {
    json["outcome"] = json["exit_status"] = json["reason"] = nullptr;
  }
  json["first_failure"] = FailureJson(FirstFailure());
  json["epochs"] = trainctl::Json::array();
  json["recovery"] = trainctl::Json::array();
  for (size_t i = 0; i < epochs_.size(); ++i) {
    const EpochStory& story = epochs_[i];
    std::vector<std::string> nodes;
    for (const NodeShare& share : story.formed.nodes) nodes.push_back(share.node);
    const bool open = i + 1 == epochs_.size() && !story.condemned && !story.replaced && !finished_;
    json["epochs"].push_back(
        {{"number", story.formed.epoch.value},
         {"world_size", story.formed.world_size()},
         {"nodes", nodes},
         {"reason", story.formed.reason},
         {"resume_step", story.formed.resume_step.value},
         {"started", WallTime(story.formed.wall_ns)},
         {"first_step", WallTime(story.first_step_wall_ns)},
         {"ended", open ? trainctl::Json() : WallTime(EndOf(i, wall_ns))},
         {"failure", FailureJson(story.condemned ? &story.condemned->failure : nullptr)}});
    if (i == 0) continue;
    const EpochStory& before = epochs_[i - 1];
    const int64_t reached = before.condemned  ? before.condemned->last_step.value
                            : before.replaced ? before.replaced->last_step.value
                                              : 0;
    const int64_t resumed = std::max<int64_t>(story.formed.resume_step.value, 0);
    json["recovery"].push_back(
        RecoveryJson(before.marks, story.marks, std::max<int64_t>(reached - resumed, 0)));
  }
  json["restarts"] = epochs_.empty() ? 0 : epochs_.size() - 1;
  json["steps"] = last_progress_ ? trainctl::Json(last_progress_->step) : trainctl::Json();
  json["samples_per_second"] = EpochRate();
  const bool has_loss = last_progress_.has_value() && last_progress_->loss != 0;
  json["final_loss"] = has_loss ? trainctl::Json(last_progress_->loss) : trainctl::Json();
  json["metrics"] = metrics_;
  const Goodput goodput = CountGoodput(wall_ns);
  const double lost = goodput.starting + goodput.redone + goodput.recovering;
  const double training = std::max(goodput.total - lost, 0.0);
  json["goodput"] = {{"seconds_total", goodput.total},
                     {"seconds_training", training},
                     {"ratio", goodput.total > 0 ? training / goodput.total : 0},
                     {"lost_by_cause", goodput.by_cause},
                     {"lost_in",
                      {{"starting", goodput.starting},
                       {"recovering", goodput.recovering},
                       {"steps_redone", goodput.redone}}}};
  json["progress"] = trainctl::Json::array();
  for (const ProgressPoint& point : series_.points()) {
    json["progress"].push_back({{"seconds", point.seconds},
                                {"epoch", point.epoch},
                                {"step", point.step},
                                {"loss", point.loss},
                                {"samples_per_second", point.samples_per_second}});
  }
  json["checkpoints"] = trainctl::Json::array();
  for (const Step step : checkpoints_) json["checkpoints"].push_back(step.value);
  json["checkpoint_folder"] = spec_.checkpoint_folder;
  json["log_folder"] = spec_.log_folder;
  json["topology_plan"] = ParseOrderedJson(plan_);
  if (json["topology_plan"].is_discarded()) json["topology_plan"] = nullptr;
  json["versions"] = {{"trainctl", TRAINCTL_VERSION}, {"kernel", KernelVersion()}};
  // Output of workers is bytes; what is no UTF-8 is replaced.
  return JsonText(json, 2) + "\n";
}

std::string Report::FailureText() const {
  const Failure* failure =
      finished_->outcome.failure.has_value() ? &*finished_->outcome.failure : FirstFailure();
  if (failure == nullptr) return "";
  // What the first line says already is not said again.
  const std::string& said = finished_->outcome.reason;
  std::string text;
  if (!absl::StrContains(said, failure->reason)) {
    absl::StrAppend(&text, "  failed:     ", failure->reason, "\n");
  }
  absl::StrAppend(&text, "  class:      ", FailureClassName(failure->failure_class), ", in epoch ",
                  failure->epoch.value, "\n");
  const std::string message = ErrorMessage(failure->exit.error_json);
  if (!message.empty() && !absl::StrContains(said, message)) {
    absl::StrAppend(&text, "  error:      ", message, "\n");
  }
  const std::vector<std::string> lines = LastLines(failure->exit.output_tail, kTailLines);
  const bool repeats =
      lines.size() == 1 && !message.empty() && absl::StrContains(lines.front(), message);
  if (lines.empty() || repeats) return text;
  absl::StrAppend(&text, "  last lines of its stderr:\n");
  for (const std::string& line : lines) absl::StrAppend(&text, "    | ", line, "\n");
  return text;
}

std::string Report::Summary() const {
  const Outcome& outcome = finished_->outcome;
  const double total =
      epochs_.empty() ? 0 : SecondsBetween(epochs_.front().formed.wall_ns, finished_->wall_ns);
  std::string text = absl::StrFormat(
      "job %s (%s) %s after %.1f s: %s\n", spec_.name.empty() ? "without a name" : spec_.name,
      spec_.job_id, OutcomeName(outcome.kind), total, outcome.reason);
  if (outcome.kind == Outcome::Kind::kFailed) absl::StrAppend(&text, FailureText());
  if (epochs_.size() > 1) {
    absl::StrAppend(&text, "  restarts:   ", epochs_.size() - 1, "\n");
  }
  if (last_progress_.has_value() && last_progress_->step > 0) {
    absl::StrAppend(&text, "  steps:      ", last_progress_->step);
    // A run that found all its steps done has neither.
    if (last_progress_->loss != 0)
      absl::StrAppendFormat(&text, ", loss %.6g", last_progress_->loss);
    if (EpochRate() > 0) absl::StrAppendFormat(&text, ", %.0f samples/s", EpochRate());
    absl::StrAppend(&text, "\n");
  }
  for (const auto& [name, value] : metrics_) {
    absl::StrAppendFormat(&text, "  %-11s %.6g\n", absl::StrCat(name, ":"), value);
  }
  absl::StrAppend(&text, "  logs:       ", spec_.log_folder, "\n");
  if (!checkpoints_.empty()) {
    absl::StrAppendFormat(&text, "  checkpoint: %s/step-%09d\n", spec_.checkpoint_folder,
                          checkpoints_.back().value);
  }
  absl::StrAppend(&text, "  report:     ", path(), "\n");
  return text;
}

}  // namespace trainctl

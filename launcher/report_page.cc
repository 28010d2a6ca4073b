#include "launcher/report_page.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "launcher/chart.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kStyle[] =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:860px;margin:2em auto;padding:0 "
    "1em;color:#222}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em;border-bottom:1px solid #ddd}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.25em .6em;border-bottom:1px solid "
    "#eee;"
    "text-align:left;vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-"
    "nums}"
    "pre{background:#f6f6f6;padding:.8em;overflow:auto;font-size:13px}figure{margin:1em 0}"
    "figcaption{font-weight:600}svg{width:100%;height:auto}svg text{font-size:11px;fill:#555}"
    ".grid{stroke:#e6e6e6}.mark{stroke:#c0392b;stroke-dasharray:4 3;stroke-width:1.5}"
    ".line{fill:none;stroke:#2c6fbb;stroke-width:1.6}.ok{color:#1e7e34}.bad{color:#b02a37}"
    ".legend{list-style:none;padding:0}.legend li{display:inline-block;margin-right:1.4em}"
    ".legend span{display:inline-block;width:.8em;height:.8em;margin-right:.4em}"
    "@media(prefers-color-scheme:dark){body{background:#181a1b;color:#ddd}pre{background:#222}"
    "svg text{fill:#aaa}.grid{stroke:#333}td,th{border-color:#333}h2{border-color:#444}}";

// What is missing or of another type reads as nothing: the file may be older or newer than we are.
const Json& At(const Json& json, const char* name) {
  static const Json kNothing;
  if (!json.is_object()) return kNothing;
  const auto found = json.find(name);
  return found == json.end() ? kNothing : *found;
}
std::string Text(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_float()) return absl::StrFormat("%.6g", json.get<double>());
  return json.is_null() || json.is_structured() ? std::string() : JsonText(json);
}
double Number(const Json& json) { return json.is_number() ? json.get<double>() : 0; }

std::optional<double> WallSeconds(const Json& json) {
  absl::Time time;
  std::string error;
  if (!json.is_string() ||
      !absl::ParseTime(absl::RFC3339_full, json.get<std::string>(), &time, &error)) {
    return std::nullopt;
  }
  return absl::ToDoubleSeconds(time - absl::UnixEpoch());
}

std::string Row(const std::string& name, const std::string& value) {
  if (value.empty()) return "";
  return absl::StrCat("<tr><th>", EscapeHtml(name), "</th><td>", EscapeHtml(value), "</td></tr>\n");
}

std::string KeyFigures(const Json& report) {
  std::string rows = absl::StrCat(Row("reason", Text(At(report, "reason"))),
                                  Row("steps", Text(At(report, "steps"))),
                                  Row("final loss", Text(At(report, "final_loss"))),
                                  Row("samples/s", Text(At(report, "samples_per_second"))),
                                  Row("restarts", Text(At(report, "restarts"))));
  if (At(report, "metrics").is_object()) {
    for (const auto& [name, value] : At(report, "metrics").items()) {
      absl::StrAppend(&rows, Row(name, Text(value)));
    }
  }
  absl::StrAppend(&rows, Row("logs", Text(At(report, "log_folder"))),
                  Row("checkpoints", Text(At(report, "checkpoint_folder"))));
  return absl::StrCat("<table>\n", rows, "</table>\n");
}

std::string GoodputSection(const Json& report) {
  const Json& goodput = At(report, "goodput");
  std::vector<ChartPart> parts = {{"training", Number(At(goodput, "seconds_training")), "#2c6fbb"}};
  static constexpr const char* kColours[] = {"#f0ad4e", "#b02a37", "#8e44ad", "#16a085", "#7f8c8d"};
  size_t colour = 0;
  const Json& lost = At(goodput, "lost_by_cause");
  if (lost.is_object()) {
    for (const auto& [cause, value] : lost.items()) {
      if (Number(value) <= 0) continue;
      parts.push_back({cause, Number(value), kColours[colour++ % std::size(kColours)]});
    }
  }
  const std::string bar = ShareBar(parts, "s");
  if (bar.empty()) return "";
  return absl::StrCat("<h2>Where the time went</h2>\n", bar);
}

// Seconds of the job's beginning, for what is told by the wall clock.
std::optional<double> Beginning(const Json& report) {
  const Json& epochs = At(report, "epochs");
  if (!epochs.is_array() || epochs.empty()) return std::nullopt;
  return WallSeconds(At(epochs.front(), "started"));
}

std::vector<std::pair<double, std::string>> EpochMarks(const Json& report) {
  std::vector<std::pair<double, std::string>> marks;
  const std::optional<double> begin = Beginning(report);
  if (!begin) return marks;
  const Json& epochs = At(report, "epochs");
  for (size_t i = 1; i < epochs.size(); ++i) {
    const std::optional<double> started = WallSeconds(At(epochs[i], "started"));
    if (!started) continue;
    marks.emplace_back(*started - *begin, absl::StrCat("epoch ", Text(At(epochs[i], "number")),
                                                       ": ", Text(At(epochs[i], "reason"))));
  }
  return marks;
}

std::string Charts(const Json& report) {
  const Json& progress = At(report, "progress");
  if (!progress.is_array()) return "";
  ChartLine loss{"loss", "s", {}, EpochMarks(report)};
  ChartLine rate{"samples/s", "s", {}, loss.marks};
  for (const Json& point : progress) {
    const double at = Number(At(point, "seconds"));
    if (At(point, "loss").is_number()) loss.points.emplace_back(at, Number(At(point, "loss")));
    if (Number(At(point, "samples_per_second")) > 0) {
      rate.points.emplace_back(at, Number(At(point, "samples_per_second")));
    }
  }
  const std::string charts = LineChart(loss) + LineChart(rate);
  return charts.empty() ? "" : absl::StrCat("<h2>Training</h2>\n", charts);
}

std::string EpochTable(const Json& report) {
  const Json& epochs = At(report, "epochs");
  if (!epochs.is_array() || epochs.empty()) return "";
  std::string rows;
  for (const Json& epoch : epochs) {
    std::vector<std::string> nodes;
    if (At(epoch, "nodes").is_array()) {
      for (const Json& node : At(epoch, "nodes")) nodes.push_back(Text(node));
    }
    constexpr size_t kShown = 8;
    const size_t more = nodes.size() > kShown ? nodes.size() - kShown : 0;
    nodes.resize(nodes.size() - more);
    std::string names;
    for (const std::string& node : nodes) absl::StrAppend(&names, names.empty() ? "" : ", ", node);
    if (more > 0) absl::StrAppend(&names, " and ", more, " more");
    absl::StrAppend(&rows, "<tr><td class=\"n\">", Text(At(epoch, "number")),
                    "</td><td class=\"n\">", Text(At(epoch, "world_size")), "</td><td>",
                    EscapeHtml(names), "</td><td>", EscapeHtml(Text(At(epoch, "started"))),
                    "</td><td>", EscapeHtml(Text(At(epoch, "reason"))), "</td></tr>\n");
  }
  return absl::StrCat(
      "<h2>Epochs</h2>\n<table><tr><th class=\"n\">epoch</th><th class=\"n\">workers</th><th>nodes"
      "</th><th>started</th><th>why</th></tr>\n",
      rows, "</table>\n");
}

constexpr std::pair<const char*, const char*> kStages[] = {
    {"detect_ms", "detect"},         {"stop_ms", "stop"},       {"form_ms", "form"},
    {"spawn_ms", "spawn"},           {"connect_ms", "connect"}, {"load_ms", "load"},
    {"first_step_ms", "first step"},
};

std::string RecoveryTable(const Json& report) {
  const Json& recovery = At(report, "recovery");
  if (!recovery.is_array() || recovery.empty()) return "";
  std::string text = "<h2>Recoveries</h2>\n<table><tr><th class=\"n\">to epoch</th>";
  for (const auto& [field, name] : kStages) {
    absl::StrAppend(&text, "<th class=\"n\">", name, "</th>");
  }
  absl::StrAppend(&text, "<th class=\"n\">total</th><th class=\"n\">steps lost</th></tr>\n");
  const auto cell = [](const Json& value) {
    const std::string shown = value.is_number() ? absl::StrFormat("%.1f ms", Number(value)) : "–";
    return absl::StrCat("<td class=\"n\">", shown, "</td>");
  };
  for (size_t i = 0; i < recovery.size(); ++i) {
    absl::StrAppend(&text, "<tr><td class=\"n\">", i + 1, "</td>");
    for (const auto& [field, name] : kStages) {
      absl::StrAppend(&text, cell(At(recovery[i], field)));
    }
    absl::StrAppend(&text, cell(At(recovery[i], "total_ms")), "<td class=\"n\">",
                    Text(At(recovery[i], "steps_lost")), "</td></tr>\n");
  }
  return absl::StrCat(text, "</table>\n");
}

std::string FailureSection(const Json& report) {
  const Json& failure = At(report, "first_failure");
  if (!failure.is_object()) return "";
  std::string text =
      absl::StrCat("<h2>First failure</h2>\n<table>\n", Row("reason", Text(At(failure, "reason"))),
                   Row("class", Text(At(failure, "class"))), Row("rank", Text(At(failure, "rank"))),
                   Row("node", Text(At(failure, "node"))),
                   Row("message", Text(At(failure, "message"))), "</table>\n");
  const std::string tail = Text(At(failure, "output_tail"));
  if (!tail.empty()) absl::StrAppend(&text, "<pre>", EscapeHtml(tail), "</pre>\n");
  return text;
}

absl::StatusOr<Json> Parse(const std::string& text) {
  Json report = ParseOrderedJson(text);
  if (!report.is_object()) {
    return absl::DataLossError("read report.json: it is not whole JSON; was the disk full?");
  }
  return report;
}

// One bar of a trace, in microseconds.
Json TraceBar(const std::string& name, double from_s, double seconds, int lane) {
  return {{"name", name}, {"ph", "X"},   {"ts", from_s * 1e6}, {"dur", seconds * 1e6},
          {"pid", 1},     {"tid", lane}, {"cat", "trainctl"}};
}
Json TraceName(const char* kind, int lane, const std::string& name) {
  return {{"name", kind}, {"ph", "M"}, {"pid", 1}, {"tid", lane}, {"args", {{"name", name}}}};
}

constexpr int kEpochLane = 1;
constexpr int kRecoveryLane = 2;

void AddEpochs(const Json& report, double begin, Json* events) {
  const Json& epochs = At(report, "epochs");
  const Json& recovery = At(report, "recovery");
  for (size_t i = 0; i < epochs.size(); ++i) {
    const std::optional<double> started = WallSeconds(At(epochs[i], "started"));
    const std::optional<double> ended = WallSeconds(At(epochs[i], "ended"));
    if (started && ended) {
      Json bar = TraceBar(absl::StrCat("epoch ", Text(At(epochs[i], "number"))), *started - begin,
                          *ended - *started, kEpochLane);
      bar["args"] = {{"reason", Text(At(epochs[i], "reason"))},
                     {"workers", At(epochs[i], "world_size")}};
      events->push_back(std::move(bar));
    }
    if (i == 0 || !recovery.is_array() || i > recovery.size() || !started) continue;
    // The stages before the forming lie before the start of the epoch, the others after it.
    const Json& stages = recovery[i - 1];
    double at = *started - begin;
    for (const char* field : {"form_ms", "stop_ms", "detect_ms"})
      at -= Number(At(stages, field)) / 1e3;
    for (const auto& [field, name] : kStages) {
      const double seconds = Number(At(stages, field)) / 1e3;
      if (seconds > 0) events->push_back(TraceBar(name, at, seconds, kRecoveryLane));
      at += seconds;
    }
  }
}

}  // namespace

absl::StatusOr<std::string> ReportPage(const std::string& report_json) {
  ASSIGN_OR_RETURN(const Json report, Parse(report_json));
  const std::string outcome = Text(At(report, "outcome"));
  const std::string title =
      absl::StrCat("Job ", Text(At(report, "name")), " (", Text(At(report, "job")), ")");
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>",
      EscapeHtml(title), "</title><style>", kStyle, "</style></head><body>\n<h1>",
      EscapeHtml(title), ": <span class=\"", outcome == "succeeded" ? "ok" : "bad", "\">",
      EscapeHtml(outcome.empty() ? "not over" : outcome), "</span></h1>\n", KeyFigures(report),
      GoodputSection(report), Charts(report), FailureSection(report), EpochTable(report),
      RecoveryTable(report), "</body></html>\n");
}

absl::Status WriteReportPages(const std::string& job_folder, const std::string& report_json) {
  ASSIGN_OR_RETURN(const std::string page, ReportPage(report_json));
  ASSIGN_OR_RETURN(const std::string timeline, ReportTimeline(report_json));
  RETURN_IF_ERROR(WriteFileAtomically(JoinPath(job_folder, "report.html"), page));
  return WriteFileAtomically(JoinPath(job_folder, "timeline.json"), timeline);
}

absl::StatusOr<std::string> ReportTimeline(const std::string& report_json) {
  ASSIGN_OR_RETURN(const Json report, Parse(report_json));
  Json events =
      Json::array({TraceName("process_name", 0, absl::StrCat("job ", Text(At(report, "job")))),
                   TraceName("thread_name", kEpochLane, "epochs"),
                   TraceName("thread_name", kRecoveryLane, "recoveries")});
  if (const std::optional<double> begin = Beginning(report)) AddEpochs(report, *begin, &events);
  if (At(report, "progress").is_array()) {
    for (const Json& point : At(report, "progress")) {
      for (const char* name : {"loss", "samples_per_second"}) {
        if (!At(point, name).is_number()) continue;
        events.push_back({{"name", name},
                          {"ph", "C"},
                          {"pid", 1},
                          {"ts", Number(At(point, "seconds")) * 1e6},
                          {"args", {{name, At(point, name)}}}});
      }
    }
  }
  const Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return JsonText(trace) + "\n";
}

}  // namespace trainctl

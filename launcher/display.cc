#include "launcher/display.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/progress_text.h"
#include "launcher/update_json.h"

namespace trainctl {
namespace {

constexpr Duration kRedrawEvery = milliseconds(100);
constexpr Duration kPlainEvery = seconds(2);
constexpr int kBarColumns = 22;

const char* ColourOf(Announce::Level level) {
  switch (level) {
    case Announce::Level::kInfo:
      return "";
    case Announce::Level::kWarning:
      return "\x1b[33m";
    case Announce::Level::kError:
      return "\x1b[31m";
  }
  return "";
}

}  // namespace

Display::Display(Console* console, DisplayOptions options)
    : console_(console),
      options_(std::move(options)),
      redraws_(console->err_is_terminal() && !options_.json) {}

Display::~Display() { EraseProgress(); }

void Display::Show(const JobUpdate& update, Instant now) {
  if (const auto* job = std::get_if<JobDescription>(&update)) {
    ShowDescription(*job);
  } else if (const auto* output = std::get_if<OutputBatch>(&update)) {
    ShowOutput(*output);
    return;  // JSON lines come from there too
  }
  if (std::holds_alternative<JobEnded>(update)) {
    FinishLines();
  }
  if (options_.json) {
    console_->Out(UpdateJson(update));
    return;
  }
  // Metrics are in the closing summary.
  if (const auto* announce = std::get_if<Announce>(&update)) {
    WriteMessage(announce->text, announce->level);
  } else if (const auto* progress = std::get_if<ProgressSeen>(&update)) {
    ShowProgress(*progress, now);
  } else if (const auto* note = std::get_if<NoteSeen>(&update)) {
    const std::string who = note->rank < 0 ? "" : absl::StrCat("rank ", note->rank, ": ");
    WriteMessage(absl::StrCat(who, note->text), Announce::Level::kInfo);
  } else if (const auto* end = std::get_if<JobEnded>(&update)) {
    ShowEnd(*end);
  }
}

void Display::Say(absl::string_view message, Announce::Level level) {
  WriteMessage(message, level);
}

void Display::ShowDescription(const JobDescription& job) {
  const bool first = !job_.has_value();
  const bool replaced = !first && job_->view.term < job.view.term;
  job_ = job;
  for (const RankPlace& place : job.view.ranks) {
    places_[place.rank] =
        Place{absl::StrCat("[", place.node, ":", place.rank, "] "), place.local_rank};
  }
  if (options_.json) {
    return;
  }
  if (first) {
    WriteMessage(absl::StrCat("job ", job.job_id, ", logs in ", job.log_folder),
                 Announce::Level::kInfo);
  } else if (replaced) {
    WriteMessage("the job's coordinator was started again; attached to it",
                 Announce::Level::kWarning);
  }
}

std::string Display::PrefixOf(int rank) const {
  const auto place = places_.find(rank);
  return place == places_.end() ? absl::StrCat("[", rank, "] ") : place->second.prefix;
}

// One write for all lines of a batch that go to the same place.
void Display::ShowOutput(const OutputBatch& batch) {
  std::string out;
  int stream = 1;
  for (const OutputBytes& output : batch) {
    const auto place = places_.find(output.rank);
    const int local_rank = place == places_.end() ? output.rank : place->second.local_rank;
    if (!options_.choice.Shows(local_rank, output.stream)) continue;
    const bool to_out = output.stream == 1 || options_.json;
    if (drops_output_ || (to_out && console_->reader_gone())) continue;
    if (output.stream != stream || output.skipped > 0) {
      Write(stream, out);
      out.clear();
    }
    stream = output.stream;
    AddLines(output, &out);
  }
  Write(stream, out);
}

void Display::AddLines(const OutputBytes& output, std::string* out) {
  LineAssembler& lines = lines_[{output.epoch.value, output.rank, output.stream}];
  if (output.skipped > 0) {
    const uint64_t lost = output.skipped + lines.Break();
    WriteMessage(LostOutputText(output.rank, output.stream, lost), Announce::Level::kWarning);
  }
  if (options_.json) {
    return lines.Add(output.data, [&](absl::string_view line) {
      out->append(LineJson(output.epoch.value, output.rank, output.stream, line));
    });
  }
  const std::string prefix = PrefixOf(output.rank);
  lines.Add(output.data, [&](absl::string_view line) { absl::StrAppend(out, prefix, line, "\n"); });
}

void Display::FinishLines() {
  for (auto& [key, assembler] : lines_) {
    const auto& [epoch, rank, stream] = key;
    std::string out;
    assembler.Finish([&, e = epoch, r = rank, s = stream](absl::string_view line) {
      out = options_.json ? LineJson(e, r, s, line) : absl::StrCat(PrefixOf(r), line, "\n");
    });
    Write(stream, out);
  }
  lines_.clear();
}

void Display::ShowProgress(const ProgressSeen& progress, Instant now) {
  if (progress.step == 0) {
    return;  // nothing to say yet
  }
  progress_ = progress;
  const bool last = progress.total_steps > 0 && progress.step >= progress.total_steps;
  if (redraws_) {
    if (last || now - last_progress_ >= kRedrawEvery) {
      last_progress_ = now;
      EraseProgress();
      DrawProgress();
    }
    return;
  }
  const int64_t tenth = progress.total_steps == 0
                            ? -1
                            : static_cast<int64_t>(progress.step * 10 / progress.total_steps);
  if (now - last_progress_ >= kPlainEvery || (last && tenth != last_tenth_)) {
    last_progress_ = now;
    last_tenth_ = tenth;
    WriteMessage(ProgressText(progress), Announce::Level::kInfo);
  }
}

void Display::ShowEnd(const JobEnded& end) {
  EraseProgress();
  const std::optional<ProgressSeen> last = std::exchange(progress_, std::nullopt);
  if (last.has_value() && redraws_) {
    WriteMessage(ProgressText(*last), Announce::Level::kInfo);  // stays on the screen
  }
  const bool failed = end.outcome == "failed";
  for (absl::string_view line : absl::StrSplit(end.summary, '\n', absl::SkipEmpty())) {
    WriteMessage(line, failed ? Announce::Level::kError : Announce::Level::kInfo);
  }
}

void Display::Write(int stream, absl::string_view data) {
  if (data.empty()) {
    return;
  }
  EraseProgress();
  if (stream == 2 && !options_.json) {
    console_->Err(data);
  } else {
    console_->Out(data);
  }
  DrawProgress();
}

void Display::WriteMessage(absl::string_view text, Announce::Level level) {
  EraseProgress();
  const char* colour = console_->colour() ? ColourOf(level) : "";
  const char* end = *colour == '\0' ? "" : "\x1b[0m";
  console_->Err(absl::StrCat(colour, "trainctl: ", text, end, "\n"));
  DrawProgress();
}

void Display::DrawProgress() {
  if (!redraws_ || !progress_.has_value() || drawn_) {
    return;
  }
  const int columns = console_->columns() - 1;
  std::string line = ProgressText(*progress_);
  const std::string bar =
      ProgressBar(*progress_, std::min(kBarColumns, columns - 2 - static_cast<int>(line.size())));
  line = bar.empty() ? line : absl::StrCat(bar, "  ", line);
  line.resize(std::min(line.size(), static_cast<size_t>(columns)));
  console_->Err(line);
  drawn_ = true;
}

void Display::EraseProgress() {
  if (drawn_) {
    console_->Err("\r\x1b[K");
    drawn_ = false;
  }
}

}  // namespace trainctl

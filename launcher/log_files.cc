#include "launcher/log_files.h"

#include <dirent.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"

namespace trainctl {
namespace {

constexpr size_t kPiece = size_t{256} << 10;

// Names in `folder` that are whole numbers, as numbers.
std::set<int64_t> NumberedEntries(const std::string& folder) {
  std::set<int64_t> numbers;
  DIR* open_folder = opendir(folder.c_str());
  if (open_folder == nullptr) {
    return numbers;
  }
  while (const dirent* entry = readdir(open_folder)) {
    int64_t number = 0;
    if (absl::SimpleAtoi(entry->d_name, &number) && number >= 0 && number <= INT32_MAX) {
      numbers.insert(number);
    }
  }
  closedir(open_folder);
  return numbers;
}

}  // namespace

std::set<int> LoggedRanks(const std::string& log_folder) {
  std::set<int> ranks;
  for (const int64_t epoch : NumberedEntries(log_folder)) {
    for (const int64_t rank : NumberedEntries(JoinPath(log_folder, absl::StrCat(epoch)))) {
      ranks.insert(static_cast<int>(rank));
    }
  }
  return ranks;
}

LogFiles::LogFiles(std::string log_folder, std::optional<std::vector<int>> ranks,
                   std::optional<int64_t> since)
    : folder_(std::move(log_folder)), all_ranks_(!ranks.has_value()), since_(since) {
  if (ranks.has_value()) {
    ranks_.insert(ranks->begin(), ranks->end());
  }
}

void LogFiles::FindNew() {
  for (const int64_t epoch : NumberedEntries(folder_)) {
    const std::string epoch_folder = JoinPath(folder_, absl::StrCat(epoch));
    for (const int64_t rank : NumberedEntries(epoch_folder)) {
      if (!all_ranks_ && ranks_.count(static_cast<int>(rank)) == 0) {
        continue;
      }
      const std::string rank_folder = JoinPath(epoch_folder, absl::StrCat(rank));
      for (const int stream : {1, 2}) {
        const Key key{epoch, static_cast<int>(rank), stream};
        if (logs_.count(key) == 0) {
          logs_.emplace(key,
                        OpenLog(JoinPath(rank_folder, stream == 1 ? "stdout.log" : "stderr.log")));
        }
      }
    }
  }
}

LogFiles::Log LogFiles::OpenLog(const std::string& path) const {
  const uint64_t from = since_.has_value() ? LogOffsetSince(path, *since_) : 0;
  if (from == 0) return Log{LogReader(path), {}, false};
  char before = '\n';
  LogReader reader(path, from - 1);
  if (reader.Read(&before, 1) == 0) reader = LogReader(path, from);
  // Pieces begin with whole lines.
  const bool whole = before == '\n' || before == '\r' || reader.TakeSkipped() > 0;
  return Log{std::move(reader), {}, !whole};
}

bool LogFiles::ReadLog(const Key& key, Log* log, bool last,
                       absl::FunctionRef<bool(const LogLine&)> on_line) {
  const auto& [epoch, rank, stream] = key;
  bool wanted = true;
  auto emit = [&, e = epoch, r = rank, s = stream](absl::string_view line) {
    wanted = wanted && on_line(LogLine{e, r, s, line});
  };
  std::string piece(kPiece, '\0');
  while (wanted) {
    absl::string_view data(piece.data(), log->reader.Read(piece.data(), piece.size()));
    if (data.empty()) {
      break;
    }
    if (const uint64_t lost = log->reader.TakeSkipped(); lost > 0) {
      losses_.push_back(LostOutputText(rank, stream, lost + log->lines.Break()));
    }
    if (log->in_old_line) {
      const size_t end = data.find_first_of("\r\n");
      data.remove_prefix(end == absl::string_view::npos ? data.size() : end + 1);
      log->in_old_line = end == absl::string_view::npos;
    }
    log->lines.Add(data, emit);
  }
  if (last) {
    log->lines.Finish(emit);
  }
  return wanted;
}

void LogFiles::Read(bool last, absl::FunctionRef<bool(const LogLine&)> on_line) {
  FindNew();
  for (auto& [key, log] : logs_) {
    if (!ReadLog(key, &log, last, on_line)) {
      return;
    }
  }
}

}  // namespace trainctl

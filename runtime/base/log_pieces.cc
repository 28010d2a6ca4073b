#include "runtime/base/log_pieces.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"

namespace trainctl {
namespace {

constexpr int kOpenAttempts = 16;  // each but the last fails only if a piece was made meanwhile
constexpr size_t kTimeBytes = 16;
constexpr size_t kLargestTimes = size_t{256} << 20;

// Not what somebody put in a log's place, such as a pipe that nobody writes.
Fd OpenFile(const std::string& path, struct stat* found) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (file.valid() && (::fstat(file.get(), found) < 0 || !S_ISREG(found->st_mode))) file.Close();
  return file;
}

uint64_t SizeOf(const struct stat& found) { return static_cast<uint64_t>(found.st_size); }

LogTime DecodeLogTime(const char* data) {
  LogTime time;
  std::memcpy(&time.offset, data, sizeof(time.offset));
  std::memcpy(&time.wall_ns, data + sizeof(time.offset), sizeof(time.wall_ns));
  return time;
}

int64_t WrittenAt(const struct stat& found) {
  return int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec;
}

}  // namespace

std::string LogPiecePath(absl::string_view log_path, uint64_t end) {
  return absl::StrCat(log_path, ".", end);
}

std::string LogTimesPath(absl::string_view log_path) {
  return absl::StrCat(absl::StripSuffix(log_path, ".log"), ".times");
}

std::vector<LogPiece> FindLogPieces(const std::string& log_path) {
  const std::string folder = FolderOf(log_path);
  const std::string prefix = absl::StrCat(log_path.substr(log_path.rfind('/') + 1), ".");
  std::vector<LogPiece> pieces;
  for (const std::string& name : FolderEntries(folder)) {
    absl::string_view rest = name;
    uint64_t end = 0;
    if (absl::ConsumePrefix(&rest, prefix) && absl::SimpleAtoi(rest, &end)) {
      pieces.push_back({JoinPath(folder, name), end});
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const LogPiece& a, const LogPiece& b) { return a.end < b.end; });
  return pieces;
}

std::string EncodeLogTime(const LogTime& time) {
  std::string record(kTimeBytes, '\0');
  std::memcpy(record.data(), &time.offset, sizeof(time.offset));
  std::memcpy(record.data() + sizeof(time.offset), &time.wall_ns, sizeof(time.wall_ns));
  return record;
}

uint64_t LogOffsetSince(const std::string& log_path, int64_t wall_ns) {
  const absl::StatusOr<std::string> times = ReadFile(LogTimesPath(log_path), kLargestTimes);
  for (size_t at = 0; times.ok() && at + kTimeBytes <= times->size(); at += kTimeBytes) {
    const LogTime time = DecodeLogTime(times->data() + at);
    if (time.wall_ns + kLogTimePause.count() > wall_ns) return time.offset;
  }
  const std::vector<LogPiece> pieces = FindLogPieces(log_path);
  const uint64_t begin = pieces.empty() ? 0 : pieces.back().end;
  struct stat found {};
  if (!OpenFile(log_path, &found).valid()) return begin;
  // Without records nothing but the file says when it was written last.
  const bool unknown = !times.ok() || times->size() < kTimeBytes;
  if (unknown && WrittenAt(found) >= wall_ns) return 0;
  return begin + SizeOf(found);
}

LogReader::LogReader(std::string log_path, uint64_t offset)
    : log_path_(std::move(log_path)), offset_(offset) {}

uint64_t LogReader::TakeSkipped() { return std::exchange(skipped_, 0); }

size_t LogReader::Read(char* data, size_t size) {
  while (file_.valid() || Open()) {
    const ssize_t n = ::pread(file_.get(), data, size, static_cast<off_t>(offset_ - begin_));
    if (n > 0) {
      offset_ += static_cast<uint64_t>(n);
      return static_cast<size_t>(n);
    }
    if (full_) {
      file_.Close();
    } else if (IsRenamed()) {
      full_ = true;  // what was added before the rename is read first
    } else {
      return 0;
    }
  }
  return 0;
}

bool LogReader::IsRenamed() const {
  struct stat now {
  }, opened{};
  if (::fstat(file_.get(), &opened) < 0) return false;
  return ::stat(log_path_.c_str(), &now) < 0 || now.st_ino != opened.st_ino ||
         now.st_dev != opened.st_dev;
}

bool LogReader::Open() {
  for (int attempt = 0; attempt < kOpenAttempts; ++attempt) {
    struct stat found {};
    // Before the pieces are listed: if it still has its name afterwards, it follows the last one.
    Fd newest = OpenFile(log_path_, &found);
    const std::vector<LogPiece> pieces = FindLogPieces(log_path_);
    const auto piece = std::find_if(pieces.begin(), pieces.end(),
                                    [this](const LogPiece& p) { return p.end > offset_; });
    if (piece != pieces.end()) {
      file_ = OpenFile(piece->path, &found);
      if (!file_.valid()) continue;  // deleted meanwhile
      begin_ = piece->end - std::min(piece->end, SizeOf(found));
      full_ = true;
    } else {
      if (!newest.valid()) return false;
      file_ = std::move(newest);
      if (IsRenamed()) continue;
      begin_ = pieces.empty() ? 0 : pieces.back().end;
      full_ = false;
    }
    if (offset_ < begin_) skipped_ += begin_ - offset_;
    offset_ = std::max(offset_, begin_);
    return true;
  }
  file_.Close();
  return false;
}

}  // namespace trainctl

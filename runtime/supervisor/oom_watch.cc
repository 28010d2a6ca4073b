#include "runtime/supervisor/oom_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"

namespace trainctl {
namespace {

constexpr size_t kLongestCounter = 64 * 1024;
constexpr size_t kLongestRecord = 8192;  // of /dev/kmsg, which gives one per read
constexpr size_t kMostKilled = 1024;

std::optional<uint64_t> ReadCounter(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kLongestCounter);
  return text.ok() ? OomKills(*text) : std::nullopt;
}

}  // namespace

std::optional<pid_t> PidKilledForMemory(absl::string_view line) {
  if (!absl::StrContains(line, "ut of memory")) return std::nullopt;
  constexpr absl::string_view kMark = "Killed process ";
  const size_t at = line.find(kMark);
  if (at == absl::string_view::npos) return std::nullopt;
  const absl::string_view rest = line.substr(at + kMark.size());
  pid_t pid = 0;
  if (!absl::SimpleAtoi(rest.substr(0, rest.find_first_not_of("0123456789")), &pid)) {
    return std::nullopt;
  }
  return pid;
}

std::optional<uint64_t> OomKills(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    uint64_t count = 0;
    if (words.size() == 2 && words[0] == "oom_kill" && absl::SimpleAtoi(words[1], &count)) {
      return count;
    }
  }
  return std::nullopt;
}

OomWatch::OomWatch(const std::vector<std::string>& counters)
    : log_(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (log_.valid()) ::lseek(log_.get(), 0, SEEK_END);
  for (const std::string& path : counters) {
    if (const auto count = ReadCounter(path)) counters_.emplace_back(path, *count);
  }
}

void OomWatch::ReadLog() {
  char record[kLongestRecord];
  while (log_.valid()) {
    const ssize_t n = ::read(log_.get(), record, sizeof(record));
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;  // older records were overwritten
    if (n <= 0) return;
    // "priority,sequence,time,flags;text\n", then lines of attributes.
    absl::string_view text(record, static_cast<size_t>(n));
    text.remove_prefix(std::min(text.find(';') + 1, text.size()));
    text = text.substr(0, text.find('\n'));
    const std::optional<pid_t> pid = PidKilledForMemory(text);
    if (pid && killed_.size() < kMostKilled) killed_[*pid] = std::string(text);
  }
}

std::string OomWatch::Evidence(pid_t pid) {
  ReadLog();
  if (const auto found = killed_.find(pid); found != killed_.end()) {
    return absl::StrCat("kernel log: ", found->second);
  }
  for (auto& [path, seen] : counters_) {
    const std::optional<uint64_t> now = ReadCounter(path);
    if (!now || *now <= seen) continue;
    ++seen;
    return absl::StrCat("out of memory: the kernel counts ", *now, " as oom_kill in ", path);
  }
  return {};
}

}  // namespace trainctl

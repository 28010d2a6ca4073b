#include "runtime/supervisor/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"

namespace trainctl {
namespace {

constexpr size_t kReadBytes = 65536;
constexpr int kNewLog = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
char buffer[kReadBytes];  // shared by all streams: the process has one thread

// Behind the last line in `data`; progress bars end theirs with a return. 0: no line ends there.
size_t LineEnd(absl::string_view data) {
  size_t end = data.rfind('\n');
  if (end == absl::string_view::npos) end = data.rfind('\r');
  return end == absl::string_view::npos ? 0 : end + 1;
}

}  // namespace

OutputStream::OutputStream(int64_t epoch, int32_t rank, uint8_t stream, Fd pipe,
                           const std::string& log_path, LogQuota* quota)
    : epoch_(epoch),
      rank_(rank),
      stream_(stream),
      pipe_(std::move(pipe)),
      log_path_(log_path),
      quota_(quota),
      log_(::open(log_path.c_str(), kNewLog | O_TRUNC, 0644)) {
  if (!log_.valid()) {
    first_failure_ = ErrnoStatus(errno, absl::StrCat("create ", log_path_));
    return;
  }
  times_ = Fd(::open(LogTimesPath(log_path).c_str(), kNewLog | O_TRUNC, 0644));
  if (quota_ != nullptr) quota_->AddWritten(log_path_);
}

OutputStream::OutputStream(int64_t epoch, int32_t rank, uint8_t stream, const std::string& log_path)
    : epoch_(epoch),
      rank_(rank),
      stream_(stream),
      log_path_(log_path),
      log_(::open(log_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
  struct stat info;
  if (log_.valid() && ::fstat(log_.get(), &info) == 0 && S_ISREG(info.st_mode)) {
    const std::vector<LogPiece> pieces = FindLogPieces(log_path);
    begin_ = pieces.empty() ? 0 : pieces.back().end;
    written_ = begin_ + static_cast<uint64_t>(info.st_size);
  }
}

bool OutputStream::Drain(size_t budget) {
  while (pipe_.valid()) {
    const ssize_t n = ::read(pipe_.get(), buffer, kReadBytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) return false;
    Store(absl::string_view(buffer, static_cast<size_t>(n)));
    // Less than was asked for: the pipe is empty, and asking again would cost as much as the copy.
    if (static_cast<size_t>(n) < kReadBytes || static_cast<size_t>(n) >= budget) return true;
    budget -= static_cast<size_t>(n);
  }
  return false;
}

void OutputStream::Store(absl::string_view data) {
  if (stream_ == kStderr) Remember(data);
  if (!log_.valid()) return Drop(data, 0);
  NoteTime();
  if (lost_ > 0 && !GoOnAfterLoss(&data)) return;
  const uint64_t piece_bytes = quota_ == nullptr ? 0 : quota_->piece_bytes();
  if (piece_bytes > 0 && written_ + data.size() - begin_ >= piece_bytes) {
    const size_t end = LineEnd(data);
    const size_t done = Write(data.substr(0, end));
    data.remove_prefix(done);
    if (done < end) return Drop(data, errno);
    // One line as long as two pieces is divided.
    if (end > 0 || written_ - begin_ >= 2 * piece_bytes) BeginPiece();
  }
  data.remove_prefix(Write(data));
  if (!data.empty()) Drop(data, errno);
}

void OutputStream::Remember(absl::string_view data) {
  const absl::string_view last = data.substr(data.size() - std::min(data.size(), kTailBytes));
  if (recent_.size() + last.size() > 2 * kTailBytes) {
    const size_t kept = kTailBytes - last.size();
    recent_.erase(0, recent_.size() - std::min(recent_.size(), kept));
  }
  recent_.append(last.data(), last.size());
}

// A line of which a part is missing would look like a line that was never printed.
bool OutputStream::GoOnAfterLoss(absl::string_view* data) {
  const size_t begin = lost_in_line_ ? data->find('\n') : 0;
  const size_t rest = lost_in_line_ ? std::min(begin, data->size() - 1) + 1 : 0;
  const uint64_t lost = lost_ + rest;
  const std::string gap = absl::StrCat(in_line_ ? "\n" : "", "trainctl: ", lost,
                                       " bytes of output are lost here: ", lost_because_, "\n");
  if (begin == absl::string_view::npos || Write(gap) < gap.size()) {
    Drop(*data, 0);
    return false;
  }
  dropped_ += rest;
  lost_ = 0;
  data->remove_prefix(rest);
  return true;
}

size_t OutputStream::Write(absl::string_view data) {
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = ::write(log_.get(), data.data() + done, data.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    done += static_cast<size_t>(n);
  }
  written_ += done;
  if (done > 0) in_line_ = data[done - 1] != '\n';
  return done;
}

void OutputStream::Drop(absl::string_view data, int error) {
  if (data.empty()) return;
  if (error != 0) {
    if (dropped_ == 0) first_failure_ = ErrnoStatus(error, absl::StrCat("write ", log_path_));
    lost_because_ = std::strerror(error);
  }
  dropped_ += data.size();
  lost_ += data.size();
  lost_in_line_ = data.back() != '\n';
}

void OutputStream::BeginPiece() {
  const std::string piece = LogPiecePath(log_path_, written_);
  if (::rename(log_path_.c_str(), piece.c_str()) < 0) return;
  Fd next(::open(log_path_.c_str(), kNewLog | O_EXCL, 0644));
  if (!next.valid()) {
    ::rename(piece.c_str(), log_path_.c_str());
    return;
  }
  log_ = std::move(next);
  quota_->AddPiece(log_path_, written_, written_ - begin_);
  begin_ = written_;
}

// Half a record would make nonsense of all that follow.
void OutputStream::NoteTime() {
  const Instant now = Now();
  if (!times_.valid() || now < next_time_) return;
  next_time_ = now + kLogTimePause;
  const std::string record = EncodeLogTime({written_, WallClockNanos()});
  if (::write(times_.get(), record.data(), record.size()) != static_cast<ssize_t>(record.size())) {
    times_.Close();
  }
}

absl::Status OutputStream::TakeFirstFailure() {
  return dropped_ == 0 ? absl::OkStatus() : std::exchange(first_failure_, absl::OkStatus());
}

void OutputStream::Request(uint64_t offset, uint64_t limit) {
  if (offset != limit_ || cursor_ > limit_) cursor_ = offset;
  limit_ = limit;
  end_told_ = false;
}

bool OutputStream::HasNext() const {
  if (cursor_ >= limit_) return false;
  return cursor_ < written_ || (!pipe_.valid() && !end_told_);
}

Instant OutputStream::NextDue(size_t enough) const {
  const bool may_grow = pipe_.valid() && written_ < limit_ && written_ - cursor_ < enough;
  if (!may_grow) return Instant{};
  // The same for all streams: whoever passes it on then wakes once for all of them.
  const int64_t gather_ns = kGatherTime.count();
  return Instant{(given_at_.ns / gather_ns + 1) * gather_ns};
}

frame::Output OutputStream::Next(size_t limit) {
  given_at_ = Now();
  frame::Output output{epoch_, rank_, stream_, cursor_, 0, {}};
  if (cursor_ < written_) {
    output.bytes.resize(std::min({uint64_t{limit}, written_ - cursor_, limit_ - cursor_}));
    const uint64_t asked = cursor_;
    output.bytes.resize(ReadLog(output.bytes.data(), output.bytes.size()));
    output.offset = cursor_ - output.bytes.size();
    output.skipped = output.offset - asked;
    return output;
  }
  end_told_ = true;
  output.offset = written_;
  return output;
}

// Moves the cursor behind what was read, or behind what is gone.
size_t OutputStream::ReadLog(char* data, size_t size) {
  if (cursor_ < begin_) {
    if (!old_.has_value() || old_->offset() != cursor_) old_.emplace(log_path_, cursor_);
    const size_t n = old_->Read(data, size);
    cursor_ = n > 0 ? old_->offset() : begin_;
    return n;
  }
  old_.reset();
  const ssize_t n = ::pread(log_.get(), data, size, static_cast<off_t>(cursor_ - begin_));
  // Somebody cut or damaged the file: what is missing cannot be shown.
  cursor_ = n > 0 ? cursor_ + static_cast<uint64_t>(n) : written_;
  return n > 0 ? static_cast<size_t>(n) : 0;
}

std::string OutputStream::Tail(int lines) const {
  size_t begin = recent_.size() - std::min(recent_.size(), kTailBytes);
  size_t at = recent_.size();
  if (at > begin && recent_[at - 1] == '\n') --at;
  while (at > begin) {
    if (recent_[at - 1] == '\n' && --lines == 0) break;
    --at;
  }
  return recent_.substr(at);
}

}  // namespace trainctl

#include "runtime/supervisor/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"

namespace trainctl {
namespace {

constexpr size_t kReadBytes = 65536;
char buffer[kReadBytes];  // shared by all streams: the process has one thread

}  // namespace

OutputStream::OutputStream(int64_t epoch, int32_t rank, uint8_t stream, Fd pipe,
                           const std::string& log_path)
    : epoch_(epoch),
      rank_(rank),
      stream_(stream),
      pipe_(std::move(pipe)),
      log_path_(log_path),
      log_(::open(log_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                  0644)) {
  if (!log_.valid()) first_failure_ = ErrnoStatus(errno, absl::StrCat("create ", log_path_));
}

OutputStream::OutputStream(int64_t epoch, int32_t rank, uint8_t stream, const std::string& log_path)
    : epoch_(epoch),
      rank_(rank),
      stream_(stream),
      log_path_(log_path),
      log_(::open(log_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
  struct stat info;
  if (log_.valid() && ::fstat(log_.get(), &info) == 0 && S_ISREG(info.st_mode)) {
    written_ = static_cast<uint64_t>(info.st_size);
  }
}

bool OutputStream::Drain(size_t budget) {
  while (pipe_.valid()) {
    const ssize_t n = ::read(pipe_.get(), buffer, kReadBytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) return false;
    Store(buffer, static_cast<size_t>(n));
    if (static_cast<size_t>(n) >= budget) return true;
    budget -= static_cast<size_t>(n);
  }
  return false;
}

void OutputStream::Store(const char* data, size_t size) {
  recent_.append(data + size - std::min(size, kTailBytes), std::min(size, kTailBytes));
  if (recent_.size() > 2 * kTailBytes) recent_.erase(0, recent_.size() - kTailBytes);
  if (!log_.valid()) return Drop(size, absl::OkStatus());
  while (size > 0) {
    const ssize_t n = ::write(log_.get(), data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Drop(size, ErrnoStatus(errno, absl::StrCat("write ", log_path_)));
    written_ += static_cast<uint64_t>(n);
    data += n;
    size -= static_cast<size_t>(n);
  }
}

void OutputStream::Drop(size_t size, absl::Status why) {
  if (dropped_ == 0 && first_failure_.ok()) first_failure_ = std::move(why);
  dropped_ += size;
}

absl::Status OutputStream::TakeFirstFailure() {
  return dropped_ == 0 ? absl::OkStatus() : std::exchange(first_failure_, absl::OkStatus());
}

void OutputStream::Request(uint64_t offset, uint64_t limit) {
  cursor_ = offset;
  limit_ = limit;
  end_told_ = false;
}

bool OutputStream::HasNext() const {
  if (cursor_ >= limit_) return false;
  return cursor_ < written_ || (!pipe_.valid() && !end_told_);
}

frame::Output OutputStream::Next(size_t limit) {
  frame::Output output{epoch_, rank_, stream_, cursor_, {}};
  if (cursor_ < written_) {
    output.bytes.resize(std::min({uint64_t{limit}, written_ - cursor_, limit_ - cursor_}));
    const ssize_t n =
        ::pread(log_.get(), output.bytes.data(), output.bytes.size(), static_cast<off_t>(cursor_));
    output.bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
    cursor_ += output.bytes.size();
    if (n > 0) return output;
    // Somebody cut or damaged the file: what is missing cannot be shown.
    cursor_ = written_;
  }
  end_told_ = true;
  output.offset = written_;
  return output;
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

// One output stream of one worker: from its pipe into its log file, and from the log file to the
// daemon as the daemon asks. The two halves share nothing but the file's length, so neither a slow
// reader nor a flood needs memory. Bytes are looked at only to divide a log between lines.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_OUTPUT_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"
#include "runtime/base/log_pieces.h"
#include "runtime/base/time.h"
#include "runtime/local/frames.h"
#include "runtime/supervisor/log_quota.h"

namespace trainctl {

inline constexpr uint8_t kStdout = 1;
inline constexpr uint8_t kStderr = 2;

// Not thread-safe. The owner watches pipe() for reading while it is open.
class OutputStream {
 public:
  // `pipe` is non-blocking. The file at `log_path` is made anew; if it cannot be, the stream works
  // and drops what it reads. After a loss the log goes on with a whole line, behind one that says
  // how much is missing. `quota` says when to begin a new piece; null: never. It outlives this.
  OutputStream(int64_t epoch, int32_t rank, uint8_t stream, Fd pipe, const std::string& log_path,
               LogQuota* quota = nullptr);
  // A stream of which only the log file is left, or not even that.
  OutputStream(int64_t epoch, int32_t rank, uint8_t stream, const std::string& log_path);

  // Copies what is in the pipe, at most about `budget` bytes. Returns false once the pipe is at its
  // end: every writer closed it.
  bool Drain(size_t budget);
  int pipe() const { return pipe_.get(); }  // -1: closed
  void ClosePipe() { pipe_.Close(); }

  // Asks for the bytes [offset, limit) in place of what was asked for before, or in continuation of
  // it, if that ends at `offset`.
  void Request(uint64_t offset, uint64_t limit);
  // Something that was asked for can be given now.
  bool HasNext() const;
  // When it should be: at once, or once so little that came so soon after the last has had time to
  // become more, up to `enough` bytes. REQUIRES: HasNext().
  Instant NextDue(size_t enough) const;
  // The next bytes that were asked for, at most `limit`; empty at the end of a log that is closed,
  // once per request. Says how many bytes before them are gone. REQUIRES: HasNext().
  frame::Output Next(size_t limit);

  int64_t epoch() const { return epoch_; }
  int32_t rank() const { return rank_; }
  uint8_t stream() const { return stream_; }
  uint64_t dropped() const { return dropped_; }
  uint64_t bytes() const { return written_ + dropped_; }  // read from the pipe so far
  // Why bytes were dropped the first time; returned once, then OK.
  absl::Status TakeFirstFailure();
  // The last lines of stderr, at most `lines` and kTailBytes, from memory: right even with a full
  // disk. Nobody is told those of stdout, and nothing is kept for it.
  std::string Tail(int lines) const;

  static constexpr size_t kTailBytes = 8192;
  // A message costs three processes more than what is in it.
  static constexpr Duration kGatherTime = milliseconds(20);

 private:
  void Store(absl::string_view data);
  void Remember(absl::string_view data);
  bool GoOnAfterLoss(absl::string_view* data);
  size_t Write(absl::string_view data);          // fewer than all: errno says why
  void Drop(absl::string_view data, int error);  // error 0: the same as before
  void BeginPiece();
  void NoteTime();
  size_t ReadLog(char* data, size_t size);

  int64_t epoch_;
  int32_t rank_;
  uint8_t stream_;
  Fd pipe_;
  std::string log_path_;
  LogQuota* quota_ = nullptr;
  Fd log_;
  Fd times_;
  Instant next_time_{};  // when the next record of times_ is due
  uint64_t begin_ = 0;   // of the piece in log_
  uint64_t written_ = 0;
  bool in_line_ = false;  // the last byte written ended no line
  uint64_t lost_ = 0;     // bytes dropped since the last byte written
  bool lost_in_line_ = false;
  std::string lost_because_;
  std::optional<LogReader> old_;  // for what is before begin_
  uint64_t cursor_ = 0;           // next byte to give
  uint64_t limit_ = 0;            // at the cursor or below it: nothing is asked for
  bool end_told_ = false;
  Instant given_at_{};
  uint64_t dropped_ = 0;
  absl::Status first_failure_;
  std::string recent_;  // at most 2 * kTailBytes
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_OUTPUT_H_

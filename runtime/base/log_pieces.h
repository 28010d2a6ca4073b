// A log that is kept in pieces, so that old ones can be deleted while it is written. PATH is being
// written; a piece that was full was renamed to PATH.END, where END is the offset in the whole
// log behind its last byte. PATH begins where the newest piece ends. Offsets are those of the whole
// log, so that they mean the same before and after a rename.
// Beside PATH.log lies PATH.times: records that say when what came, one a second at most.
#ifndef TRAINCTL_RUNTIME_BASE_LOG_PIECES_H_
#define TRAINCTL_RUNTIME_BASE_LOG_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"
#include "runtime/base/time.h"

namespace trainctl {

struct LogPiece {
  std::string path;
  uint64_t end = 0;  // offset behind its last byte
};

std::string LogPiecePath(absl::string_view log_path, uint64_t end);
std::string LogTimesPath(absl::string_view log_path);
// The pieces that are full, by offset.
std::vector<LogPiece> FindLogPieces(const std::string& log_path);

struct LogTime {  // the bytes from `offset` on came at `wall_ns` or later
  uint64_t offset = 0;
  int64_t wall_ns = 0;
};
inline constexpr Duration kLogTimePause = seconds(1);  // between two records
std::string EncodeLogTime(const LogTime& time);
// Where to begin to read in order to see what came since then, and at most kLogTimePause more. The
// log's end if nothing came.
uint64_t LogOffsetSince(const std::string& log_path, int64_t wall_ns);

// Reads a log that may be written, renamed and deleted meanwhile. Not thread-safe.
class LogReader {
 public:
  explicit LogReader(std::string log_path, uint64_t offset = 0);

  // The next bytes, at most `size`; 0: there are none yet, or no log.
  size_t Read(char* data, size_t size);
  uint64_t offset() const { return offset_; }  // behind the last byte read
  // Bytes that were gone before they were read, since the last call.
  uint64_t TakeSkipped();

 private:
  bool Open();
  bool IsRenamed() const;

  std::string log_path_;
  uint64_t offset_;
  uint64_t skipped_ = 0;
  Fd file_;
  uint64_t begin_ = 0;  // of file_
  bool full_ = false;   // nothing is added to file_ any more
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_LOG_PIECES_H_

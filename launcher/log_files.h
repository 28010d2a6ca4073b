// The workers' logs of one job, read from its files: LOGS/EPOCH/RANK/{stdout,stderr}.log.
#ifndef TRAINCTL_LAUNCHER_LOG_FILES_H_
#define TRAINCTL_LAUNCHER_LOG_FILES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "launcher/line_assembler.h"
#include "runtime/base/log_pieces.h"

namespace trainctl {

struct LogLine {
  int64_t epoch = 0;
  int rank = 0;
  int stream = 1;  // 1 stdout, 2 stderr
  absl::string_view line;
};

// Every rank that has logs in some epoch.
std::set<int> LoggedRanks(const std::string& log_folder);

// Reads what is there and, called again, what was added since. Not thread-safe.
class LogFiles {
 public:
  // `ranks`: only these; nullopt: all.
  // `since`: only lines that came since then (nanoseconds since 1970), and up to a second before;
  // a line that had begun before is left out.
  LogFiles(std::string log_folder, std::optional<std::vector<int>> ranks,
           std::optional<int64_t> since = std::nullopt);

  // Epochs in order, within an epoch by rank, of a rank stdout first. Stops early when `on_line`
  // returns false. `last`: nothing will be added, so that an unfinished line is a line.
  void Read(bool last, absl::FunctionRef<bool(const LogLine&)> on_line);
  // What was gone before it could be read, since the last call, for people.
  std::vector<std::string> TakeLosses() { return std::exchange(losses_, {}); }

 private:
  using Key = std::tuple<int64_t, int, int>;  // epoch, rank, stream
  struct Log {
    LogReader reader;
    LineAssembler lines;
    bool in_old_line = false;  // nothing is shown up to the next end of a line
  };

  void FindNew();
  Log OpenLog(const std::string& path) const;
  bool ReadLog(const Key& key, Log* log, bool last,
               absl::FunctionRef<bool(const LogLine&)> on_line);

  const std::string folder_;
  std::set<int> ranks_;
  const bool all_ranks_;
  const std::optional<int64_t> since_;
  std::vector<std::string> losses_;
  std::map<Key, Log> logs_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_LOG_FILES_H_

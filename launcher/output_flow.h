// Which bytes of which worker's log to ask for next, and who gets what came. Pull, with one open
// request per log, which is continued before it ends: a reader that is slow or stopped holds back
// nobody, costs no memory, and loses nothing, because the log is a file on the worker's node.
#ifndef TRAINCTL_LAUNCHER_OUTPUT_FLOW_H_
#define TRAINCTL_LAUNCHER_OUTPUT_FLOW_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/journal_record.h"
#include "runtime/base/ids.h"

namespace trainctl {

struct LogKey {
  Epoch epoch;
  int rank = 0;
  int stream = 1;  // 1 stdout, 2 stderr
  auto operator<=>(const LogKey&) const = default;
};

// PURE. Not thread-safe. Every method that may open the way for a request returns the requests to
// send.
class OutputFlow {
 public:
  // Takes the place of the log's request before it, or continues it if that ends at `offset`.
  struct Ask {
    std::string node;
    LogKey log;
    uint64_t offset = 0;
    uint64_t limit = 0;
  };
  struct Piece {
    int watcher = 0;
    LogKey log;
    uint64_t offset = 0;
    uint64_t skipped = 0;    // so many bytes before `offset` are gone
    absl::string_view data;  // of the argument of Take
  };

  // The logs of a new epoch begin to exist; those before that nobody still reads are forgotten.
  std::vector<Ask> OpenEpoch(Epoch epoch, const std::vector<RankPlace>& ranks);
  std::vector<Ask> NodeHere(const std::string& node, bool here);
  // `seen`: up to where the watcher has the logs already. Without it, the watcher gets the current
  // epoch's logs from their beginning; with it also those of earlier epochs in it. The first
  // watcher of all gets every epoch's: workers may fail faster than a front end attaches.
  std::vector<Ask> AddWatcher(int watcher, const std::map<LogKey, uint64_t>& seen);
  void RemoveWatcher(int watcher);
  // Whether the watcher can take more now. Initially it can.
  std::vector<Ask> SetRoom(int watcher, bool room);
  // `data` from `offset` on came from `node`, and `skipped` bytes before are gone; neither: the log
  // ends there for good.
  std::vector<Piece> Take(const std::string& node, const LogKey& key, uint64_t offset,
                          absl::string_view data, uint64_t skipped = 0);
  void After(const LogKey& key, std::vector<Ask>* asks);  // the request that follows Takes

  // Every watcher has every log to its end, except logs of nodes that are not here.
  bool Drained() const;

 private:
  struct Log {
    std::string node;
    bool asked = false;
    uint64_t asked_from = 0;
    uint64_t asked_limit = 0;
    std::optional<uint64_t> end;
    std::map<int, uint64_t> cursors;  // by watcher
  };
  uint64_t Window() const;
  void AskFor(const LogKey& key, Log& log, std::vector<Ask>* asks) const;
  std::vector<Ask> AskForAll();
  static bool Complete(const Log& log);

  Epoch current_{-1};
  std::map<LogKey, Log> logs_;
  std::set<std::string> nodes_here_;
  std::map<int, bool> room_;  // by watcher
  bool watched_ = false;      // somebody has watched since this began
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_OUTPUT_FLOW_H_

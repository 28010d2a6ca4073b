// Which nodes are in, late, lost, fenced or spare. Pure.
//
// The one rule about time: a node's workers of an epoch are gone when the node says so, or when
// `lease` + 1 s have passed since the coordinator last answered that node (its shim kills them
// `lease` after it *sent* the request that was answered; the second covers clocks that drift).
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_MEMBERSHIP_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_MEMBERSHIP_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/event.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/rank_plan.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

namespace trainctl {

// A node's part in the current epoch.
enum class Part {
  kNone,      // spare, or the job has no epoch
  kStarting,  // told to start, or expected to come back after a restart of the coordinator
  kStarted,   // all its workers were spawned
  kGone,      // it confirmed that every descendant of its workers is gone
  kLost,      // its lease ended
};

struct Node {
  std::string name;
  Incarnation incarnation;
  std::string address;
  int cores = 1;
  int slots = 0;
  int reserved_port = 0;
  bool connected = false;
  std::string left_reason;  // meaningful if !connected
  Epoch shim_epoch{-1};
  bool gone = true;  // nothing of shim_epoch is left on it
  Part part = Part::kNone;
  Instant answered;  // the last time it was told to live on; meaningful while in an epoch

  bool holds_workers() const { return part == Part::kStarting || part == Part::kStarted; }
};

class Membership {
 public:
  explicit Membership(Duration lease) : lease_(lease) {}

  // False: an older life of the node's daemon is speaking; nothing changes.
  bool Join(const NodeJoined& joined);
  bool Leave(const NodeLeft& left);  // as Join

  struct LeaseDecision {
    bool granted = false;
    std::string reason;  // why not
  };
  // `patience_over`: the current epoch has had all the time it gets to end.
  LeaseDecision DecideLease(const LeaseRequested& request, Epoch current, bool patience_over,
                            Instant now);

  // Nodes that can take workers now, best first: members of `previous`, then numeric order.
  std::vector<NodePlace> Ready(int workers, const std::vector<RankPlace>& previous) const;

  // A new epoch on `ranks`: its nodes are kStarting from `now`, all others kNone.
  void BeginEpoch(Epoch epoch, const std::vector<RankPlace>& ranks, Instant now);
  void ToldToStart(const std::string& name, Epoch epoch, Instant now);  // once more
  // After a replay: the nodes of the epoch are not here yet and may live on for a whole lease.
  void ExpectEpoch(const std::vector<RankPlace>& ranks, Instant now);
  void MarkStarted(const std::string& name, int reserved_port);
  void MarkGone(const std::string& name);

  // Nodes whose lease is over by `now`; they are kLost from then on.
  std::vector<std::string> EndLeases(Instant now);
  Instant next_lease_end() const;  // kNever if no node holds workers

  const Node* Find(absl::string_view name) const;
  std::vector<const Node*> All() const;             // numeric order
  std::vector<const Node*> HoldingWorkers() const;  // numeric order
  bool AllStarted() const;                          // no part is kStarting

 private:
  struct ByNumericName {
    using is_transparent = void;
    bool operator()(absl::string_view a, absl::string_view b) const { return NumericLess(a, b); }
  };
  Instant LeaseEnd(const Node& node) const;
  Node* FindMutable(absl::string_view name);

  Duration lease_;
  std::map<std::string, Node, ByNumericName> nodes_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_MEMBERSHIP_H_

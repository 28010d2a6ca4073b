// Which nodes are in, late, lost, fenced or spare. Pure.
//
// The one rule about time: a node's workers of an epoch are gone when the node says so, or when
// `lease` + 1 s have passed since the coordinator last answered that node (its shim kills them
// `lease` after it *sent* the request that was answered; the second covers clocks that drift).
//
// What is called for every event takes a time that does not grow with the nodes, but for finding a
// name.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_MEMBERSHIP_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_MEMBERSHIP_H_

#include <cstddef>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/coordinator.h"
#include "launcher/coordinator/event.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/rank_plan.h"
#include "launcher/coordinator/spec.h"
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
  Incarnation incarnation;  // 0: never here in this term
  std::string machine;
  std::vector<NodeAddress> addresses;
  std::string topology;
  int position = -1;  // where its ranks are wanted; -1: anywhere
  int cores = 1;
  int slots = 0;
  std::string unfit;  // why it can take no workers; empty: it can
  int reserved_port = 0;
  bool connected = false;
  std::string left_reason;  // meaningful if !connected
  bool lost = false;        // its lease ended, and it was not here since
  Epoch shim_epoch{-1};
  bool gone = true;  // nothing of shim_epoch is left on it
  Part part = Part::kNone;
  int seat = -1;      // in the newest epoch, EpochFormed::nodes; -1: none
  Instant answered;   // the last time it was told to live on; meaningful while in an epoch
  Instant since;      // of its standing
  Instant joined_at;  // its stream
  bool drained = false;
  std::string avoided;  // not empty: used only if there are fewer than `suffice` others, and why
  size_t suffice = 0;
  std::string verified;  // the meeting place that it has reached (ConnectBack)
  std::string address;   // its own on that connection

  bool usable() const { return usable_; }  // it can take workers now
  bool holds_workers() const { return part == Part::kStarting || part == Part::kStarted; }
  absl::string_view first_address() const {
    return addresses.empty() ? absl::string_view() : absl::string_view(addresses.front().address);
  }

 private:
  friend class Membership;
  // As they are in the counts.
  bool usable_ = false;
  bool starting_ = false;
  bool drained_member_ = false;
  bool present_ = false;
  NodeStanding standing_ = NodeStanding::kExpected;
  std::list<Node*>::iterator lease_;  // in leases_ while it holds workers
  bool leased_ = false;
};

class Membership {
 public:
  explicit Membership(const JobSpec& spec);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Of the calls that follow. Never goes back.
  void AdvanceTo(Instant now) { now_ = now; }

  struct JoinDecision {
    bool accepted = false;
    bool old = false;    // !accepted: an older life of the node's daemon is speaking
    std::string reason;  // !accepted
  };
  // Nothing changes if the node is not accepted.
  JoinDecision Join(const NodeJoined& joined);
  bool Leave(const NodeLeft& left);  // false: of a stream that does not count any more
  // Why the job has no place for a node that is here; empty: it has.
  std::string Surplus(const Node& node) const;

  struct LeaseDecision {
    bool granted = false;
    std::string reason;  // why not
  };
  // `patience_over`: the current epoch has had all the time it gets to end.
  LeaseDecision DecideLease(const LeaseRequested& request, Epoch current, bool patience_over);

  // Workers that the node would take; 0: it has too few slots.
  int WorkersOn(const Node& node) const;
  // Nodes that can take workers now: those of the newest epoch by seat, then as PlacedBefore.
  std::vector<const Node*> Usable() const;
  NodePlace PlaceOf(const Node& node) const;

  // A new epoch: its nodes are kStarting, all others kNone.
  void BeginEpoch(const EpochFormed& epoch);
  void ToldToStart(const std::string& name, Epoch epoch);  // once more
  // After a replay: the nodes of the epoch are not here yet and may live on for a whole lease.
  // But for those that were lost before.
  void ExpectEpoch(const EpochFormed& epoch, const std::set<std::string>& lost);
  void MarkStarted(const std::string& name, int reserved_port);
  void MarkGone(const std::string& name);
  void MarkUnfit(const std::string& name, std::string why);
  void MarkDrained(const std::string& name, bool drained);
  // From now on it is used only if there are fewer than `suffice` others.
  void Avoid(const std::string& name, std::string why, size_t suffice);
  void ForgetAvoided();
  void Verify(const std::string& name, std::string meeting_place, std::string own_address);
  void ForgetVerified();

  // A node whose lease is over, kLost from then on; nullptr: none is.
  const Node* EndOneLease();
  Instant next_lease_end() const;  // kNever if no node holds workers

  const Node* Find(absl::string_view name) const;
  std::vector<const Node*> All() const;             // numeric order
  std::vector<const Node*> HoldingWorkers() const;  // numeric order
  NodeStanding StandingOf(const Node& node) const;  // kReady stands for kSpare, too

  size_t usable() const { return usable_; }
  size_t holding() const { return leases_.size(); }
  size_t starting() const { return starting_; }
  size_t drained_members() const { return drained_members_; }  // that hold workers

 private:
  struct ByNumericName {
    using is_transparent = void;
    bool operator()(absl::string_view a, absl::string_view b) const { return NumericLess(a, b); }
  };
  Instant LeaseEnd(const Node& node) const;
  Node* FindMutable(absl::string_view name);
  Node& FindOrMake(const std::string& name);
  std::string WhyNot(const NodeJoined& joined, const Node* known) const;
  void Answer(Node& node);   // it may live on for a lease from now
  void Changed(Node& node);  // brings the counts up to date
  int PositionOf(const NodeJoined& joined) const;

  const Duration lease_;
  const int workers_per_node_;
  const size_t places_;  // members and spares
  std::map<std::string, int> positions_;
  Instant now_;
  std::map<std::string, Node, ByNumericName> nodes_;
  std::map<absl::string_view, Node*> by_name_;  // plain order compares faster
  std::map<int, const Node*> by_node_rank_;     // of nodes that are present
  std::list<Node*> leases_;                     // of nodes that hold workers, the next to end first
  size_t usable_ = 0;
  size_t starting_ = 0;
  size_t drained_members_ = 0;
  size_t present_ = 0;  // nodes that take up one of the places
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_MEMBERSHIP_H_

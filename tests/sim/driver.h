// The coordinator's process around the real coordinator, journal encoding and replay. It does what
// launcher/driver does, and can die between any two of the things it does.
#ifndef TRAINCTL_TESTS_SIM_DRIVER_H_
#define TRAINCTL_TESTS_SIM_DRIVER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "launcher/coordinator/coordinator.h"
#include "tests/sim/network.h"
#include "tests/sim/process.h"

namespace trainctl::sim {

class World;

class Driver {
 public:
  explicit Driver(World* world);

  void Start();  // from the journal
  void Kill(absl::string_view why);
  void LosePower();
  Process& process() { return process_; }
  bool listens() const { return process_.alive(); }
  // nullptr while no coordinator lives.
  const Coordinator* coordinator() const { return coordinator_.get(); }
  const std::vector<JournalRecord>& records() const { return records_; }  // durable ones
  const std::optional<Outcome>& outcome() const { return outcome_; }
  int terms() const { return terms_; }

  // From the network.
  void OnEvent(StreamId stream, int node, Event event);
  void OnNodeClosed(StreamId stream);
  // From people.
  void Tell(Event event);

 private:
  struct Told {
    StreamId stream = kNoStream;  // kNoStream: not from a node
    int node = 0;
    std::optional<Event> event;  // nullopt: the stream ended
  };
  struct Seat {  // a node's streams
    StreamId stream = kNoStream;
    StreamId replaced = kNoStream;  // by it, until the batch is performed
    Incarnation incarnation;
    std::string name;
  };

  void TellOfRecords(const std::vector<JournalRecord>& records);
  void Pump();
  std::optional<Event> Admit(Told told);
  std::optional<Event> AdmitJoin(const Told& told, NodeJoined joined);
  void Step(const Event& event);
  void Perform(Batch batch);
  void WriteJournal(std::shared_ptr<Batch> batch);
  void Sync(std::shared_ptr<Batch> batch);
  void PerformActions(const std::vector<Action>& actions);
  void Do(const Action& action);
  void SendTo(const std::string& node, const Action& action);
  void Refuse(const RefuseNode& action);
  void DropReplaced();
  void ArmTimer();
  void OnTimer();
  void End();
  void Die();

  World* world_;
  Process process_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<JournalRecord> records_;
  size_t seen_ = 0;  // of the journal's records, how many the checkers were told of
  Term term_;
  std::deque<Told> inbox_;
  bool busy_ = false;     // a batch is made durable or performed
  bool writing_ = false;  // within a write to the journal
  std::vector<Seat> seats_;
  std::vector<int> replaced_;  // nodes whose replaced stream is still to be closed
  absl::flat_hash_map<StreamId, int> joined_;
  Instant armed_ = kNever;
  Process::Timer timer_;
  std::optional<Outcome> outcome_;
  std::vector<Action> to_release_;
  int terms_ = 0;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_DRIVER_H_

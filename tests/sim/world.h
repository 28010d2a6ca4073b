// One simulated job: its nodes, network, disk, coordinator, faults and checkers.
#ifndef TRAINCTL_TESTS_SIM_WORLD_H_
#define TRAINCTL_TESTS_SIM_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/spec.h"
#include "tests/sim/checkers.h"
#include "tests/sim/disk.h"
#include "tests/sim/driver.h"
#include "tests/sim/faults.h"
#include "tests/sim/folder.h"
#include "tests/sim/network.h"
#include "tests/sim/node.h"
#include "tests/sim/options.h"
#include "tests/sim/random.h"
#include "tests/sim/timeline.h"
#include "tests/sim/training.h"

namespace trainctl::sim {

enum class Verdict { kGood, kUnsafe, kStuck };

struct Result {
  Verdict verdict = Verdict::kGood;
  std::string checker;  // that objected
  std::string text;
  uint64_t digest = 0;  // of the trace
  std::string trace;    // if it was to be kept
  // What went on, to see that a run was worth its name.
  int64_t epochs = 0;
  int terms = 0;
  int64_t steps = 0;
  size_t faults = 0;
  Duration to_running{0};  // from the start
  std::string end;         // how the job ended, or that it runs
};

class World {
 public:
  explicit World(const Options& options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Result Run();

  // ---- Parts
  Timeline& timeline() { return timeline_; }
  Random& random() { return random_; }
  Network& network() { return *network_; }
  Disk& disk() { return disk_; }
  Folder& folder() { return folder_; }
  Driver& driver() { return *driver_; }
  Faults& faults() { return *faults_; }
  Checkers& checkers() { return *checkers_; }
  const JobSpec& spec() const { return spec_; }
  const Options& options() const { return options_; }
  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  Node& node(int index) { return *nodes_[static_cast<size_t>(index)]; }
  int IndexOf(const std::string& name) const;  // -1: no such node
  int slots() const { return options_.slots; }

  // ---- The job's program
  Duration step_time() const { return step_time_; }
  int64_t total_steps() const { return total_steps_; }
  int64_t steps_between_checkpoints() const { return steps_between_checkpoints_; }
  bool saves() const { return !spec_.checkpoint_folder.empty(); }
  Training* training(Epoch epoch);
  Training* newest_training() { return trainings_.empty() ? nullptr : newest_; }
  void OnFormed(const EpochFormed& formed);
  void OnWorkerRuns(Epoch epoch, int rank, int node);
  void OnWorkerEnded(Epoch epoch, int rank, bool failed);
  void OnGranted(Epoch epoch, int node, const frame::CommitGranted& granted);
  void OnPageRequest(Epoch epoch, bool checkpoint, bool stop);
  std::vector<Step> ListCheckpoints();
  void OnProbe(int node, const ProbeAddress& ask);

  bool SentToNodes(const Action& action) const;

  // ---- Machines that stand still, or have no power
  void PowerOff(int node);
  void PowerOn(int node);
  void StopMachine(int node, bool clock_stands);
  void ResumeMachine(int node);
  bool any_machine_stopped() const { return machines_stopped_ > 0; }
  // Nobody can end the workers of this node: its machine stands still, or both halves of its shim
  // are stopped; or that was so until a moment ago, and is made up for.
  bool excused(int node) const;
  void Pardon(int node) {
    pardoned_until_[static_cast<size_t>(node)] = timeline_.now() + seconds(1);
  }

  // ---- Wishes of the harness
  bool broken(Mutation mutation) const { return options_.mutation == mutation; }
  void Mutate(Batch* batch) const;
  void ForgetAtStart(std::vector<JournalRecord>* records) const;

  int64_t NextIncarnation() { return ++incarnation_; }
  uint32_t NextLink() { return ++link_; }
  int64_t WallClock() const;
  void Violation(const std::string& checker, std::string text);
  bool violated() const { return result_.verdict != Verdict::kGood; }

  template <typename... Parts>
  void trace(const Parts&... parts) {
    if (options_.keep_trace) AddToTrace(absl::StrCat(parts...));
    AddToDigest(parts...);
  }

 private:
  void AddToTrace(const std::string& line);
  template <typename... Parts>
  void AddToDigest(const Parts&... parts) {
    MixIn(static_cast<uint64_t>(timeline_.now().ns));
    (MixPart(parts), ...);
  }
  void MixIn(uint64_t value);
  template <typename T>
  void MixPart(const T& part) {
    if constexpr (std::is_arithmetic_v<T>) {
      MixIn(static_cast<uint64_t>(part));
    } else {
      for (const char c : absl::string_view(part)) MixIn(static_cast<uint64_t>(c));
    }
  }

  void DrawSpec();
  void Begin();
  void RunUntil(Instant until);
  bool Settled();
  void CheckLiveness();
  void AfterTheEnd();
  void Finish();

  const Options options_;
  Timeline timeline_;
  Random random_;
  Disk disk_;
  Folder folder_;
  JobSpec spec_;
  Duration step_time_{0};
  int64_t total_steps_ = 0;
  int64_t steps_between_checkpoints_ = 0;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Faults> faults_;
  std::unique_ptr<Checkers> checkers_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unique_ptr<Driver> driver_;
  std::map<Epoch, std::unique_ptr<Training>> trainings_;
  Training* newest_ = nullptr;
  std::vector<Instant> pardoned_until_;
  int machines_stopped_ = 0;
  int64_t incarnation_ = 0;
  uint32_t link_ = 0;
  Instant instant_;  // and how often something happened in it
  uint64_t in_one_instant_ = 0;
  Result result_;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_WORLD_H_

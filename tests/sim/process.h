// Machines with clocks of their own, and processes that can be killed or stopped between any two
// things they do.
#ifndef TRAINCTL_TESTS_SIM_PROCESS_H_
#define TRAINCTL_TESTS_SIM_PROCESS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/base/time.h"
#include "tests/sim/random.h"
#include "tests/sim/timeline.h"

namespace trainctl::sim {

class Process;

// CLOCK_BOOTTIME of a machine: its own origin, and a little faster or slower than the true time.
class Machine {
 public:
  Machine(Timeline* timeline, Random* random);

  Instant Now() const;
  // When the clock will show `local` if nothing happens to it; not before now.
  Instant TrueTimeOf(Instant local) const;
  bool runs() const { return powered_ && !paused_; }
  bool powered() const { return powered_; }
  bool paused() const { return paused_; }
  bool clock_stands() const { return clock_stands_; }

  // All its processes stand still. `clock_stands`: a virtual machine whose clock does not notice.
  void Pause(bool clock_stands);
  void Resume();
  void PowerOff();  // kills every process
  void PowerOn();   // with a new origin of its clock
  void Add(Process* process) { processes_.push_back(process); }

 private:
  void Boot();

  Timeline* timeline_;
  Random* random_;
  std::vector<Process*> processes_;
  bool powered_ = true;
  bool paused_ = false;
  bool clock_stands_ = false;
  int64_t drift_ppm_ = 0;
  Instant true_origin_;
  Instant local_origin_;
};

class Process {
 public:
  Process(Timeline* timeline, Machine* machine) : timeline_(timeline), machine_(machine) {
    machine->Add(this);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Start() { alive_ = true; }
  void Kill();  // what it was to do later is forgotten
  void Stop() { stopped_ = true; }
  void Continue();
  bool alive() const { return alive_; }
  bool stopped() const { return stopped_; }
  bool runs() const { return alive_ && !stopped_ && machine_->runs(); }
  Instant Now() const { return machine_->Now(); }
  Machine& machine() const { return *machine_; }

  struct Timer {
    uint32_t slot = 0;
    uint32_t life = 0;  // 0: none
  };
  // By the machine's clock; late if the process does not run then, never if it died.
  Timer At(Instant local, Task task);
  Timer After(Duration delay, Task task) { return At(Now() + delay, std::move(task)); }
  void Cancel(Timer* timer);
  // Lets a timer wait until a later time, which costs nothing now. False: it does not wait, or
  // longer than that.
  bool Postpone(const Timer& timer, Instant local);
  // Now, or once it runs again; not at all if it is dead.
  void Deliver(Task task);

 private:
  friend class Machine;
  struct Pending {
    Task task;
    Instant when;
    uint32_t life = 0;
  };
  Timer Keep(Instant when, Task task);
  void Fire(Timer timer);
  void RunParked();

  Timeline* timeline_;
  Machine* machine_;
  bool alive_ = false;
  bool stopped_ = false;
  uint32_t next_life_ = 1;
  std::vector<Pending> pending_;
  std::vector<uint32_t> free_;
  std::vector<Timer> parked_;  // were due while it did not run
  Instant resumed_at_ = kNever;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_PROCESS_H_

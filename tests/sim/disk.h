// The coordinator's journal file on a disk that may tear, fill up and fail to sync.
#ifndef TRAINCTL_TESTS_SIM_DISK_H_
#define TRAINCTL_TESTS_SIM_DISK_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "tests/sim/random.h"

namespace trainctl::sim {

class Disk {
 public:
  explicit Disk(Random random) : random_(random) {}

  const std::string& bytes() const { return bytes_; }  // as a reader sees them
  size_t synced() const { return synced_; }            // of them, how many survive anything
  void Truncate(size_t size);
  // False: the disk is full; a part may have been written.
  bool Write(absl::string_view bytes);
  bool Sync();  // false: what is written since the last sync may be there or not

  // The process died in the middle of its last write.
  void TearLastWrite();
  // Only what was synced is certain to be there; of the rest any beginning is.
  void LosePower();
  // What a disk must not do: forget something that it had synced.
  void ForgetSynced(size_t bytes);

  void set_full(bool full) { full_ = full; }
  void FailNextSync() { fail_sync_ = true; }

 private:
  Random random_;
  std::string bytes_;
  size_t synced_ = 0;
  size_t last_write_ = 0;  // where it began
  bool full_ = false;
  bool fail_sync_ = false;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_DISK_H_

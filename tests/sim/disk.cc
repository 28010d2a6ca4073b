#include "tests/sim/disk.h"

#include <algorithm>
#include <utility>

namespace trainctl::sim {

void Disk::Truncate(size_t size) {
  bytes_.resize(size);
  synced_ = std::min(synced_, size);
}

bool Disk::Write(absl::string_view bytes) {
  last_write_ = bytes_.size();
  const size_t fits = full_ ? random_.Below(bytes.size()) : bytes.size();
  bytes_.append(bytes.data(), fits);
  return fits == bytes.size();
}

bool Disk::Sync() {
  if (std::exchange(fail_sync_, false)) {
    bytes_.resize(synced_ + random_.Below(bytes_.size() - synced_ + 1));
    return false;
  }
  synced_ = bytes_.size();
  return true;
}

void Disk::TearLastWrite() {
  const size_t from = std::max(last_write_, synced_);
  if (from < bytes_.size()) bytes_.resize(from + random_.Below(bytes_.size() - from + 1));
}

void Disk::LosePower() {
  bytes_.resize(synced_ + random_.Below(bytes_.size() - synced_ + 1));
  synced_ = bytes_.size();
  // A file's length can be durable before its contents are.
  if (random_.Chance(0.2)) bytes_.append(random_.Below(40), '\0');
}

void Disk::ForgetSynced(size_t bytes) { Truncate(synced_ - std::min(synced_, bytes)); }

}  // namespace trainctl::sim

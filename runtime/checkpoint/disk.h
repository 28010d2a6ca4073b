// The disk operations that a checkpoint consists of, one call each, so that a test can fail, stop
// or replay every one of them.
#ifndef TRAINCTL_RUNTIME_CHECKPOINT_DISK_H_
#define TRAINCTL_RUNTIME_CHECKPOINT_DISK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"

namespace trainctl {

// Thread-safe. Failures carry the path and what errno said; a full disk is RESOURCE_EXHAUSTED.
class Disk {
 public:
  virtual ~Disk() = default;
  virtual absl::Status MakeFolder(const std::string& path);        // one level; existing is fine
  virtual absl::StatusOr<Fd> CreateFile(const std::string& path);  // for writing, emptied
  virtual absl::Status Write(const Fd& file, absl::string_view data, const std::string& path);
  virtual absl::Status SyncFile(const Fd& file, const std::string& path);
  virtual absl::Status SyncFolder(const std::string& path);
  virtual absl::Status Rename(const std::string& from, const std::string& to);
  // Both names exist afterwards with each other's folder. UNIMPLEMENTED: not on this file system.
  virtual absl::Status Exchange(const std::string& a, const std::string& b);
  virtual absl::Status RemoveFile(const std::string& path);    // missing is fine
  virtual absl::Status RemoveFolder(const std::string& path);  // if empty; missing is fine
};

Disk& RealDisk();

// Removes a folder and the files in it (checkpoints have no folders inside). Missing is fine.
absl::Status RemoveWithFiles(Disk& disk, const std::string& folder);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_CHECKPOINT_DISK_H_

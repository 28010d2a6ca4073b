#include "runtime/node/slot_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr char kShared[] = "/run/lock/trainctl";
constexpr char kFallback[] = "/tmp/trainctl-locks";
constexpr size_t kMaxHolderBytes = 64;

// Every user may add a lock file, none may remove another's.
absl::Status PrepareFolder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 01777) == 0) {
    if (::chmod(folder.c_str(), 01777) < 0)
      return ErrnoStatus(errno, absl::StrCat("open ", folder));
  } else if (errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("create folder ", folder));
  }
  struct stat info;
  if (::lstat(folder.c_str(), &info) < 0)
    return ErrnoStatus(errno, absl::StrCat("look at ", folder));
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is not a folder: remove it"));
  }
  return absl::OkStatus();
}

absl::Status CheckUuid(absl::string_view uuid) {
  const bool good = uuid.size() >= 4 && uuid.size() <= 80 && absl::ascii_isalnum(uuid[0]) &&
                    std::all_of(uuid.begin(), uuid.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", uuid, "\" is not the UUID of a GPU"));
}

std::string HolderOf(int fd) {
  char text[kMaxHolderBytes];
  const ssize_t n = ::pread(fd, text, sizeof(text), 0);
  const absl::string_view holder(text, n > 0 ? static_cast<size_t>(n) : 0);
  return holder.empty() ? "another job" : absl::StrCat("job ", holder.substr(0, holder.find('\n')));
}

absl::StatusOr<Fd> LockOne(const std::string& path, absl::string_view uuid,
                           const std::string& job_id) {
  // Others can put what they like into a shared folder.
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open the lock file ", path));
  struct stat info;
  if (::fstat(fd.get(), &info) < 0 || !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file: remove it"));
  }
  if (info.st_uid == ::geteuid()) ::fchmod(fd.get(), 0666);  // whatever our umask is
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", path));
    return absl::ResourceExhaustedError(
        absl::StrCat("GPU ", uuid, " is in use by ", HolderOf(fd.get()),
                     " on this node; choose others or wait until it ends"));
  }
  // For the message of whoever comes second; the lock itself does not depend on it.
  const std::string holder = absl::StrCat(job_id, "\n");
  if (::ftruncate(fd.get(), 0) == 0) {
    [[maybe_unused]] const ssize_t n = ::pwrite(fd.get(), holder.data(), holder.size(), 0);
  }
  return fd;
}

}  // namespace

std::string SlotLockFolder() {
  return PrepareFolder(kShared).ok() && ::access(kShared, W_OK) == 0 ? kShared : kFallback;
}

absl::StatusOr<std::vector<Fd>> LockSlots(const std::string& folder,
                                          const std::vector<std::string>& gpu_uuids,
                                          const std::string& job_id) {
  std::vector<Fd> locks;
  if (gpu_uuids.empty()) return locks;
  RETURN_IF_ERROR(PrepareFolder(folder));
  for (const std::string& uuid : gpu_uuids) {
    RETURN_IF_ERROR(CheckUuid(uuid));
    ASSIGN_OR_RETURN(Fd lock, LockOne(JoinPath(folder, uuid), uuid, job_id));
    locks.push_back(std::move(lock));
  }
  return locks;
}

absl::StatusOr<Fd> LockShim(const std::string& path) {
  while (true) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open the lock file ", path));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) < 0) {
      if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", path));
      return absl::UnavailableError(absl::StrCat(path, " is locked by a shim that is ending"));
    }
    struct stat opened;
    struct stat named;
    if (::fstat(fd.get(), &opened) < 0) return ErrnoStatus(errno, absl::StrCat("look at ", path));
    const bool there = ::lstat(path.c_str(), &named) == 0;
    if (there && opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) return fd;
    // Its last holder removed it between our open and our lock.
  }
}

}  // namespace trainctl

#include "runtime/security/cluster_key.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

absl::StatusOr<ClusterKey> RandomKey() {
  ClusterKey key;
  // Requests of up to 256 bytes are answered whole.
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return ErrnoStatus(errno, "draw a random key");
  }
  return key;
}

// A file of its own name that holds the whole key before the key's name exists.
absl::Status WriteTemporary(const std::string& path, const ClusterKey& key) {
  ::unlink(path.c_str());  // left by a process with our number that was killed
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path));
  RETURN_IF_ERROR(
      WriteAll(fd.get(), {reinterpret_cast<const char*>(key.data()), key.size()}, path));
  if (::fsync(fd.get()) < 0) return ErrnoStatus(errno, absl::StrCat("fsync ", path));
  return absl::OkStatus();
}

std::string MachineName() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

std::string SystemKeyPath() { return "/etc/trainctl/cluster.key"; }
std::string UserKeyPath() { return JoinPath(ConfigFolder(), "cluster.key"); }

absl::Status WriteNewKey(const std::string& path) {
  RETURN_IF_ERROR(MakeFolders(FolderOf(path), 0700));
  ASSIGN_OR_RETURN(const ClusterKey key, RandomKey());
  const std::string temporary = absl::StrCat(path, ".", MachineName(), ".", ::getpid());
  absl::Status status = WriteTemporary(temporary, key);
  // link, unlike rename, never replaces.
  if (status.ok() && ::link(temporary.c_str(), path.c_str()) < 0) {
    status = errno == EEXIST
                 ? absl::AlreadyExistsError(absl::StrCat(
                       path,
                       " is there already; a key is never replaced: remove it first, on every "
                       "node, if it is to be another"))
                 : ErrnoStatus(errno, absl::StrCat("give the new key its name ", path));
  }
  ::unlink(temporary.c_str());
  RETURN_IF_ERROR(status);
  return SyncFolder(FolderOf(path));
}

absl::StatusOr<ClusterKey> ReadKey(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open the cluster key ", path));
  struct stat found;
  if (::fstat(fd.get(), &found) < 0) return ErrnoStatus(errno, absl::StrCat("look at ", path));
  if ((found.st_mode & 0077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("the cluster key %s can be read or written by others (mode %04o), so it is "
                        "no secret: chmod 600 %s, and make a new one if others may have read it",
                        path, found.st_mode & 07777, path));
  }
  if (found.st_uid != ::geteuid() && found.st_uid != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the cluster key ", path, " belongs to user ", found.st_uid,
                     ", who could replace it; it must be ours (", ::geteuid(), ") or root's"));
  }
  ClusterKey key;
  char bytes[sizeof(ClusterKey) + 1];
  size_t size = 0;
  while (size < sizeof(bytes)) {
    const ssize_t n = ::read(fd.get(), bytes + size, sizeof(bytes) - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read the cluster key ", path));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size != key.size()) {
    return absl::DataLossError(absl::StrCat("the cluster key ", path, " does not have ", key.size(),
                                            " bytes; copy it again from another node"));
  }
  std::copy_n(bytes, key.size(), key.begin());
  return key;
}

absl::StatusOr<std::string> ChooseKeyFile() {
  if (::geteuid() == 0 && ::access(SystemKeyPath().c_str(), F_OK) == 0) return SystemKeyPath();
  const std::string path = UserKeyPath();
  if (::access(path.c_str(), F_OK) == 0) return path;
  const absl::Status made = WriteNewKey(path);
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  return path;
}

}  // namespace trainctl

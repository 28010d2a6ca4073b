#include "runtime/checkpoint/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace trainctl {

absl::Status Disk::MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) < 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("create folder ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<Fd> Disk::CreateFile(const std::string& path) {
  // O_NOFOLLOW: in a folder that others can write, a link must not lead the write elsewhere.
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path));
  return file;
}

absl::Status Disk::Write(const Fd& file, absl::string_view data, const std::string& path) {
  return WriteAll(file.get(), data, path);
}

absl::Status Disk::SyncFile(const Fd& file, const std::string& path) {
  if (::fsync(file.get()) < 0) return ErrnoStatus(errno, absl::StrCat("fsync ", path));
  return absl::OkStatus();
}

absl::Status Disk::SyncFolder(const std::string& path) { return trainctl::SyncFolder(path); }

absl::Status Disk::Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) < 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", from, " to ", to));
  }
  return absl::OkStatus();
}

absl::Status Disk::Exchange(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EINVAL || errno == ENOSYS) {
    return absl::UnimplementedError(absl::StrCat("exchange ", a, " and ", b));
  }
  return ErrnoStatus(errno, absl::StrCat("exchange ", a, " and ", b));
}

absl::Status Disk::RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) < 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove ", path));
  }
  return absl::OkStatus();
}

absl::Status Disk::RemoveFolder(const std::string& path) {
  if (::rmdir(path.c_str()) < 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove folder ", path));
  }
  return absl::OkStatus();
}

Disk& RealDisk() {
  static Disk disk;
  return disk;
}

absl::Status RemoveWithFiles(Disk& disk, const std::string& folder) {
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) {
    if (errno == ENOENT) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("open folder ", folder));
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(stream);
  for (const std::string& name : names) {
    RETURN_IF_ERROR(disk.RemoveFile(JoinPath(folder, name)));
  }
  return disk.RemoveFolder(folder);
}

}  // namespace trainctl

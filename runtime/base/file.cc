#include "runtime/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace trainctl {

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  std::string data;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (n == 0) return data;
    if (data.size() + static_cast<size_t>(n) > limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat("read ", path, ": larger than the limit of ", limit, " bytes"));
    }
    data.append(buffer, static_cast<size_t>(n));
  }
}

namespace {

absl::Status Replace(const std::string& path, absl::string_view data, bool sync) {
  const std::string temporary = absl::StrCat(path, ".tmp.", ::getpid());
  Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", temporary));
  absl::Status status = WriteAll(fd.get(), data, temporary);
  if (status.ok() && sync && ::fsync(fd.get()) < 0) {
    status = ErrnoStatus(errno, absl::StrCat("fsync ", temporary));
  }
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) < 0) {
    status = ErrnoStatus(errno, absl::StrCat("rename ", temporary, " to ", path));
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
  }
  return status;
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, absl::string_view data) {
  RETURN_IF_ERROR(Replace(path, data, /*sync=*/true));
  return SyncFolder(FolderOf(path));
}

absl::Status ReplaceFile(const std::string& path, absl::string_view data) {
  return Replace(path, data, /*sync=*/false);
}

absl::Status SyncFolder(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open folder ", path));
  if (::fsync(fd.get()) < 0) return ErrnoStatus(errno, absl::StrCat("fsync folder ", path));
  return absl::OkStatus();
}

absl::Status MakeFolders(const std::string& path, unsigned mode) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), mode) < 0 && errno != EEXIST) {
      return ErrnoStatus(errno, absl::StrCat("create folder ", part));
    }
    if (slash == std::string::npos) break;
  }
  struct stat info;
  if (::stat(path.c_str(), &info) < 0 || !S_ISDIR(info.st_mode)) {
    return ErrnoStatus(ENOTDIR, absl::StrCat("create folder ", path));
  }
  return absl::OkStatus();
}

std::vector<std::string> FolderEntries(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (folder == nullptr) return names;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  return names;
}

std::string JoinPath(absl::string_view folder, absl::string_view name) {
  if (folder.empty() || folder.back() == '/') return absl::StrCat(folder, name);
  return absl::StrCat(folder, "/", name);
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string ProgramFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace trainctl

#include "runtime/node/job_folders.h"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"

namespace trainctl {
namespace {

std::string OwnerLink(const std::string& folder) { return JoinPath(folder, "daemon"); }

}  // namespace

std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), ::closedir);
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir.get())) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  return names;
}

void SetOwner(const std::string& folder, const std::string& socket) {
  const std::string link = OwnerLink(folder);
  ::unlink(link.c_str());
  if (::symlink(socket.c_str(), link.c_str()) < 0) {
    LogWarning(ErrnoStatus(errno, absl::StrCat("create ", link)).message());
  }
}

bool IsOwner(const std::string& folder, const std::string& socket) {
  std::string target(4096, '\0');
  const ssize_t n = ::readlink(OwnerLink(folder).c_str(), target.data(), target.size());
  return n > 0 && target.substr(0, static_cast<size_t>(n)) == socket;
}

}  // namespace trainctl

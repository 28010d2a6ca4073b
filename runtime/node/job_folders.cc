#include "runtime/node/job_folders.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"

namespace trainctl {
namespace {

std::string OwnerLink(const std::string& folder) { return JoinPath(folder, "daemon"); }

void MakeLink(const std::string& link, const std::string& target) {
  ::unlink(link.c_str());
  if (::symlink(target.c_str(), link.c_str()) < 0) {
    LogWarning(ErrnoStatus(errno, absl::StrCat("create ", link)).message());
  }
}

// Empty if it is no link.
std::string TargetOf(const std::string& link) {
  std::string target(4096, '\0');
  const ssize_t n = ::readlink(link.c_str(), target.data(), target.size());
  target.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return target;
}

}  // namespace

void SetOwner(const std::string& folder, const std::string& socket) {
  MakeLink(OwnerLink(folder), socket);
}

bool IsOwner(const std::string& folder, const std::string& socket) {
  return TargetOf(OwnerLink(folder)) == socket;
}

void LinkJob(const std::string& ours, const std::string& folder) {
  if (folder == ours) return;
  const absl::Status made = MakeFolders(FolderOf(ours));
  if (!made.ok()) return LogWarning(made.message());
  MakeLink(ours, folder);
}

void UnlinkJob(const std::string& ours) {
  if (!TargetOf(ours).empty()) ::unlink(ours.c_str());
}

std::string FollowJob(const std::string& ours) {
  const std::string target = TargetOf(ours);
  return target.empty() ? ours : target;
}

}  // namespace trainctl

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

}  // namespace

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

#include "runtime/base/places.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr absl::string_view kJobEnding = ".job";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Home() {
  std::string home = Environment("HOME");
  if (!home.empty()) return home;
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? "/" : entry->pw_dir;
}

}  // namespace

std::string SocketFolder() {
  const uid_t uid = ::geteuid();
  return uid == 0 ? "/run/trainctl" : absl::StrCat("/tmp/trainctl-", uid);
}

std::string DaemonSocket() { return JoinPath(SocketFolder(), "traind.sock"); }
std::string JobSocket(absl::string_view job_id) {
  return JoinPath(SocketFolder(), absl::StrCat(job_id, kJobEnding));
}
bool IsJobSocket(absl::string_view path) { return absl::EndsWith(path, kJobEnding); }
std::string ShimSocket(absl::string_view job_id) {
  return JoinPath(SocketFolder(), absl::StrCat(job_id, ".shim"));
}

std::string PartShimSocket(absl::string_view job_id, absl::string_view node) {
  // A node's name may be longer than what a socket's path has room for.
  uint32_t hash = 2166136261u;
  for (const char c : node) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return JoinPath(SocketFolder(),
                  absl::StrCat(job_id, ".", absl::Hex(hash, absl::kZeroPad8), ".shim"));
}

std::string StateFolder() {
  const std::string wanted = Environment("XDG_STATE_HOME");
  // The specification says that a relative path is to be ignored.
  if (!wanted.empty() && wanted[0] == '/') return JoinPath(wanted, "trainctl");
  if (::geteuid() == 0) return "/var/lib/trainctl";
  return JoinPath(Home(), ".local/state/trainctl");
}

std::string ConfigFolder() {
  const std::string wanted = Environment("XDG_CONFIG_HOME");
  if (!wanted.empty() && wanted[0] == '/') return JoinPath(wanted, "trainctl");
  return JoinPath(Home(), ".config/trainctl");
}

std::string JobFolder(const std::string& state_folder, absl::string_view job_id) {
  return JoinPath(JoinPath(state_folder, "jobs"), job_id);
}

std::string PartFolder(const std::string& state_folder, absl::string_view job_id,
                       absl::string_view node) {
  return JoinPath(JoinPath(JoinPath(state_folder, "parts"), job_id), node);
}

absl::Status MakePrivateFolder(const std::string& path) {
  RETURN_IF_ERROR(MakeFolders(FolderOf(path)));
  if (::mkdir(path.c_str(), 0700) < 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("create folder ", path));
  }
  struct stat info;
  if (::lstat(path.c_str(), &info) < 0) return ErrnoStatus(errno, absl::StrCat("look at ", path));
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is ", S_ISLNK(info.st_mode) ? "a symbolic link" : "not a folder",
                     "; it must be a folder of ours, because others could replace it: remove it"));
  }
  if (info.st_uid != ::geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(path, " belongs to user ", info.st_uid,
                                                      ", not to us (", ::geteuid(),
                                                      "): remove it or have its owner do so"));
  }
  if ((info.st_mode & 0077) != 0 && ::chmod(path.c_str(), 0700) < 0) {
    return ErrnoStatus(errno, absl::StrCat("close ", path, " to other users"));
  }
  return absl::OkStatus();
}

}  // namespace trainctl

#include "runtime/base/errno_status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
    case EADDRINUSE:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EFBIG:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
      return absl::StatusCode::kResourceExhausted;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return absl::StatusCode::kUnavailable;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kUnknown;
  }
}

const char* RemedyOf(int error) {
  switch (error) {
    case EMFILE:
      return " (raise the limit of open files, ulimit -n)";
    case EFBIG:
      return " (raise the limit of file sizes, ulimit -f)";
    default:
      return "";
  }
}

}  // namespace

absl::Status ErrnoStatus(int error, absl::string_view what) {
  return absl::Status(CodeOf(error),
                      absl::StrCat(what, ": ", std::strerror(error), RemedyOf(error)));
}

}  // namespace trainctl

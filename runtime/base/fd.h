// File descriptors: ownership and the few calls that everybody needs.
#ifndef TRAINCTL_RUNTIME_BASE_FD_H_
#define TRAINCTL_RUNTIME_BASE_FD_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// Owns one descriptor and closes it. Movable, not copyable. Not thread-safe.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Close();

 private:
  int fd_ = -1;
};

// Writes all of `data`, through EINTR and short writes. `what` names the target in the error.
absl::Status WriteAll(int fd, absl::string_view data, absl::string_view what);
absl::Status SetNonBlocking(int fd);

// A unix stream socket, close-on-exec. Listening creates the file with `mode`; a stale file (one on
// which nobody listens) is replaced, a live one is ALREADY_EXISTS.
absl::StatusOr<Fd> ListenUnix(const std::string& path, unsigned mode);
// UNAVAILABLE if nobody listens.
absl::StatusOr<Fd> ConnectUnix(const std::string& path);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_FD_H_

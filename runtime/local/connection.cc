#include "runtime/local/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"

namespace trainctl {
namespace {

// About what the socket holds, so that what was sent together is one batch.
constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kMostBuffers = 32;  // in one write

}  // namespace

Connection::Connection(Loop& loop, Fd socket, Callbacks callbacks)
    : loop_(loop), socket_(std::move(socket)), callbacks_(std::move(callbacks)) {
  loop_.Watch(socket_.get(), EPOLLIN, [this](uint32_t events) { OnEvents(events); });
}

Connection::~Connection() { Close(); }

void Connection::Close() {
  if (!socket_.valid()) return;
  loop_.Unwatch(socket_.get());
  socket_.Close();
}

void Connection::Fail(absl::Status why) {
  if (!socket_.valid()) return;
  Close();
  callbacks_.on_closed(std::move(why));
}

void Connection::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) Write();
  if (socket_.valid() && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read();
}

void Connection::Read() {
  char buffer[kReadBytes];
  const ssize_t n = ::recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) return Fail(ErrnoStatus(errno, "receive frames"));
  if (n == 0) return Fail(absl::UnavailableError("the peer closed the connection"));
  decoder_.Feed(absl::string_view(buffer, static_cast<size_t>(n)));
  // A callback may close this connection, which ends the reading.
  while (socket_.valid()) {
    absl::StatusOr<std::optional<frame::Frame>> frame = decoder_.Next();
    if (!frame.ok()) return Fail(std::move(frame).status());
    if (!frame->has_value()) break;
    callbacks_.on_frame(std::move(**frame));
  }
  if (socket_.valid()) callbacks_.on_batch_end();
}

size_t Connection::NextBuffers(iovec* buffers) {
  size_t count = 0;
  if (sent_ < current_.size())
    buffers[count++] = {current_.data() + sent_, current_.size() - sent_};
  for (std::deque<std::string>* queue : {&control_, &bulk_}) {
    for (std::string& frame : *queue) {
      if (count == kMostBuffers) return count;
      buffers[count++] = {frame.data(), frame.size()};
    }
  }
  return count;
}

void Connection::Sent(size_t bytes) {
  while (bytes > 0) {
    if (sent_ == current_.size()) {
      current_is_bulk_ = control_.empty();
      std::deque<std::string>& queue = current_is_bulk_ ? bulk_ : control_;
      current_ = std::move(queue.front());
      queue.pop_front();
      sent_ = 0;
    }
    const size_t part = std::min(bytes, current_.size() - sent_);
    sent_ += part;
    (current_is_bulk_ ? queued_bulk_ : queued_control_) -= part;
    bytes -= part;
  }
  if (sent_ < current_.size()) return;
  current_.clear();
  sent_ = 0;
}

void Connection::Write() {
  bool progress = false;
  iovec buffers[kMostBuffers];
  while (const size_t count = NextBuffers(buffers)) {
    msghdr message{};
    message.msg_iov = buffers;
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      // The peer is gone, which Read sees after it has taken what was sent before.
      DropQueues();
      break;
    }
    progress = true;
    Sent(static_cast<size_t>(n));
  }
  if (idle()) ArmWrite(false);
  if (progress) callbacks_.on_room();
}

void Connection::ArmWrite(bool wanted) {
  if (wanted == armed_) return;
  armed_ = wanted;
  loop_.Modify(socket_.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void Connection::DropQueues() {
  control_.clear();
  bulk_.clear();
  current_.clear();
  sent_ = queued_control_ = queued_bulk_ = 0;
}

void Connection::Send(const frame::Frame& frame) {
  if (!socket_.valid()) return;
  control_.push_back(frame::Encode(frame));
  queued_control_ += control_.back().size();
  if (queued_control_ > kMaxQueuedBytes) {
    DropQueues();
    ::shutdown(socket_.get(), SHUT_RDWR);  // ends in Read, and so in on_closed
    return;
  }
  ArmWrite(true);
}

void Connection::SendBulk(const frame::Frame& frame) {
  if (!socket_.valid()) return;
  bulk_.push_back(frame::Encode(frame));
  queued_bulk_ += bulk_.back().size();
  ArmWrite(true);
}

}  // namespace trainctl

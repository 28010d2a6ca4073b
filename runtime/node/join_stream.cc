#include "runtime/node/join_stream.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/log.h"
#include "runtime/rpc/channel.h"

namespace trainctl {
namespace {

constexpr Duration kFirstBackoff = milliseconds(5);
constexpr Duration kMaxBackoff = milliseconds(500);

}  // namespace

JoinStream::JoinStream(Loop* loop, std::string socket, Callbacks callbacks)
    : loop_(loop), socket_(std::move(socket)), callbacks_(std::move(callbacks)) {}

JoinStream::~JoinStream() { Close(); }

void JoinStream::Close() {
  loop_->Cancel(retry_);
  if (stream_ == nullptr) return;
  Stream* stream = std::exchange(stream_, nullptr);
  stream->on_message = nullptr;
  stream->on_closed = nullptr;
  stream->Cancel();
  callbacks_.on_lost();
}

void JoinStream::Open() {
  if (stream_ != nullptr) return;
  loop_->Cancel(retry_);
  backoff_ = Duration(0);
  Dial();
}

void JoinStream::Dial() {
  absl::StatusOr<DialledChannel> dialled = DialUnix(socket_);
  if (!dialled.ok()) return Lost(dialled.status());
  stream_ = new Stream(loop_);
  stream_->on_message = [this](const v1::NodeOrder& order) {
    backoff_ = Duration(0);
    callbacks_.on_order(order);
  };
  stream_->on_closed = [this](const absl::Status& status) {
    stream_ = nullptr;
    callbacks_.on_lost();
    Lost(status);
  };
  // The call keeps the channel alive; the stub is needed to start it only.
  v1::JobService::NewStub(dialled->channel)->async()->Join(stream_->context(), stream_);
  stream_->Begin();
  for (v1::NodeMessage& message : callbacks_.opening()) stream_->Send(std::move(message));
}

void JoinStream::Lost(const absl::Status& why) {
  LogInfo("the stream to ", socket_, " is lost: ", why.message());
  backoff_ = std::clamp<Duration>(backoff_ * 2, kFirstBackoff, kMaxBackoff);
  retry_ = loop_->After(backoff_, [this] { Dial(); });
}

void JoinStream::Send(v1::NodeMessage message) {
  if (stream_ != nullptr) stream_->Send(std::move(message));
}

}  // namespace trainctl

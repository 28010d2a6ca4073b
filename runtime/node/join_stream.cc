#include "runtime/node/join_stream.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/log.h"
#include "runtime/rpc/channel.h"

namespace trainctl {
namespace {

constexpr Duration kFirstRetry = milliseconds(5);
constexpr Duration kLongestRetry = milliseconds(500);

// Of those who answered. A loss, however often, is none.
bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsAborted(status) ||
         absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsInvalidArgument(status);
}

}  // namespace

JoinStream::JoinStream(Loop* loop, ServiceAddress coordinator, Callbacks callbacks)
    : loop_(loop), coordinator_(std::move(coordinator)), callbacks_(std::move(callbacks)) {}

JoinStream::~JoinStream() { Close(); }

void JoinStream::Close() {
  loop_->Cancel(retry_);
  if (stream_ == nullptr) return;
  Stream* stream = std::exchange(stream_, nullptr);
  stream->on_message = nullptr;
  stream->on_closed = nullptr;
  stream->Cancel();
  callbacks_.on_lost(absl::CancelledError("closed"));
}

void JoinStream::Open() {
  if (stream_ != nullptr) return;
  loop_->Cancel(retry_);
  backoff_ = Duration(0);
  Dial();
}

void JoinStream::Dial() {
  absl::StatusOr<DialledChannel> dialled = trainctl::Dial(coordinator_);
  if (!dialled.ok()) return Lost(dialled.status());
  stream_ = new Stream(loop_);
  stream_->on_message = [this](const v1::NodeOrder& order) {
    backoff_ = Duration(0);
    callbacks_.on_order(order);
  };
  stream_->on_closed = [this](const absl::Status& status) {
    stream_ = nullptr;
    Lost(ExplainCall(coordinator_, status));
  };
  // The call keeps the channel alive; the stub is needed to start it only.
  v1::JobService::NewStub(dialled->channel)->async()->Join(stream_->context(), stream_);
  stream_->Begin();
  for (v1::NodeMessage& message : callbacks_.opening()) stream_->Send(std::move(message));
}

void JoinStream::Lost(const absl::Status& why) {
  LogInfo("the stream to ", coordinator_.ToString(), " is lost: ", why.message());
  callbacks_.on_lost(why);
  if (IsRefusal(why)) return callbacks_.on_refused(why);
  backoff_ = std::clamp<Duration>(backoff_ * 2, kFirstRetry, kLongestRetry);
  retry_ = loop_->After(backoff_, [this] { Dial(); });
}

void JoinStream::Send(v1::NodeMessage message) {
  if (stream_ != nullptr) stream_->Send(std::move(message));
}

}  // namespace trainctl

#include "launcher/job_client.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/wire.h"
#include "proto/job.grpc.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/rpc_status.h"
#include "runtime/rpc/streams.h"

namespace trainctl {

using Feed = ClientFeed<v1::JobUpdate>;

// Kept alive by its timers and by the open feed's callbacks, which look at `ended` first.
struct JobWatch::State : std::enable_shared_from_this<JobWatch::State> {
  using LogKey = std::tuple<int64_t, int, uint32_t>;  // epoch, rank, stream

  State(Loop* the_loop, std::string path, WatchOptions the_options, Callbacks the_callbacks)
      : loop(the_loop),
        socket_path(std::move(path)),
        options(the_options),
        callbacks(std::move(the_callbacks)),
        give_up(Now() + options.patience) {}

  void Dial();
  void Retry(const absl::Status& why);
  void Message(const v1::JobUpdate& message);
  // Of an output message, the part that was not seen yet; false: none.
  bool TakeNew(OutputBytes& output);
  void End(const absl::Status& status);

  Loop* const loop;
  const std::string socket_path;
  const WatchOptions options;
  Callbacks callbacks;
  Instant give_up;
  Duration backoff = milliseconds(10);
  std::unique_ptr<v1::JobService::Stub> stub;
  v1::WatchRequest request;
  Feed* feed = nullptr;
  std::map<LogKey, uint64_t> seen;
  bool finished = false;  // JobEnded was delivered
  bool ended = false;
};

void JobWatch::State::Dial() {
  if (ended) return;
  absl::StatusOr<DialledChannel> dialled = DialUnix(socket_path);
  if (!dialled.ok()) return Retry(dialled.status());
  stub = v1::JobService::NewStub(dialled->channel);
  request.Clear();
  request.set_output(options.output);
  request.set_owner(options.owner);
  for (const auto& [key, offset] : seen) {
    v1::OutputFrom* from = request.add_seen();
    from->set_epoch(std::get<0>(key));
    from->set_rank(std::get<1>(key));
    from->set_stream(std::get<2>(key));
    from->set_offset(offset);
  }
  feed = new Feed(loop);
  feed->on_message = [self = shared_from_this()](const v1::JobUpdate& message) {
    self->Message(message);
  };
  feed->on_closed = [self = shared_from_this()](const absl::Status& status) {
    self->feed = nullptr;
    if (self->ended) return;
    if (self->finished) return self->End(absl::OkStatus());
    // Refused, not lost: trying again would be refused again.
    if (absl::IsPermissionDenied(status) || absl::IsUnimplemented(status)) {
      return self->End(status);
    }
    self->Retry(status);
  };
  stub->async()->Watch(feed->context(), &request, feed);
  feed->Begin();
}

void JobWatch::State::Retry(const absl::Status& why) {
  if (Now() >= give_up) {
    return End(
        absl::UnavailableError(absl::StrCat("watch the job at ", socket_path, ": ", why.message(),
                                            "; tried for ", ToSeconds(options.patience), " s")));
  }
  loop->After(backoff, [self = shared_from_this()] { self->Dial(); });
  backoff = std::min<Duration>(backoff * 2, milliseconds(250));
}

bool JobWatch::State::TakeNew(OutputBytes& output) {
  const LogKey key{output.epoch.value, output.rank, static_cast<uint32_t>(output.stream)};
  uint64_t& next = seen[key];
  const uint64_t end = output.offset + output.data.size();
  if (output.offset > next || end <= next) return false;
  output.data.erase(0, next - output.offset);
  output.offset = next;
  next = end;
  return true;
}

void JobWatch::State::Message(const v1::JobUpdate& message) {
  if (ended) return;
  give_up = Now() + options.patience;
  backoff = milliseconds(10);
  std::optional<JobUpdate> update = FromProto(message);
  if (!update.has_value()) return;
  if (auto* output = std::get_if<OutputBytes>(&*update); output != nullptr && !TakeNew(*output)) {
    return;
  }
  if (std::holds_alternative<JobEnded>(*update)) finished = true;
  callbacks.on_update(*std::move(update));
}

void JobWatch::State::End(const absl::Status& status) {
  if (std::exchange(ended, true)) return;
  callbacks.on_end(status);
}

JobWatch::JobWatch(Loop* loop, std::string socket_path, WatchOptions options, Callbacks callbacks)
    : state_(std::make_shared<State>(loop, std::move(socket_path), options, std::move(callbacks))) {
  state_->Dial();
}

JobWatch::~JobWatch() {
  state_->ended = true;
  if (state_->feed != nullptr) state_->feed->Cancel();
}

struct JobClient::Channel {
  std::string socket_path;

  // One call on a fresh connection: the coordinator may have been replaced since the last one.
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                    const Request& request, Response* response, Duration timeout) {
    const Instant give_up = Now() + timeout;
    for (Duration backoff = milliseconds(10);; backoff *= 2) {
      absl::Status status;
      if (absl::StatusOr<DialledChannel> dialled = DialUnix(socket_path); dialled.ok()) {
        const auto stub = v1::JobService::NewStub(dialled->channel);
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + (give_up - Now()));
        status = FromGrpc(((*stub).*method)(&context, request, response));
      } else {
        status = dialled.status();
      }
      const bool again =
          absl::IsUnavailable(status) && Now() + backoff < give_up && backoff < milliseconds(300);
      if (!again) return status;
      // A coordinator that died is replaced within 100 ms.
      absl::SleepFor(absl::Nanoseconds(backoff.count()));
    }
  }
};

JobClient::JobClient(const std::string& socket_path)
    : channel_(std::make_unique<Channel>(Channel{socket_path})) {}
JobClient::~JobClient() = default;

absl::StatusOr<JobDescription> JobClient::Describe(Duration timeout) {
  v1::JobState state;
  RETURN_IF_ERROR(
      channel_->Call(&v1::JobService::Stub::Describe, v1::DescribeRequest(), &state, timeout));
  return FromProto(state);
}

absl::Status JobClient::Stop(const StopAsked& order, Duration timeout) {
  v1::StopRequest request;
  request.set_by(order.by);
  request.set_checkpoint(order.checkpoint);
  request.set_now(order.now);
  v1::StopReply reply;
  return channel_->Call(&v1::JobService::Stub::Stop, request, &reply, timeout);
}

absl::Status JobClient::Signal(int signo, Duration timeout) {
  v1::SignalRequest request;
  request.set_signo(signo);
  v1::SignalReply reply;
  return channel_->Call(&v1::JobService::Stub::Signal, request, &reply, timeout);
}

}  // namespace trainctl

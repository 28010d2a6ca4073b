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

namespace {

using Feed = ClientFeed<v1::JobUpdate>;

// For the first message of a watch: a machine may be overloaded.
constexpr Duration kAnswerPatience = seconds(30);

std::string NotAnswering(const std::string& socket_path, int pid, Duration waited) {
  return absl::StrCat("process ", pid, ", the coordinator at ", socket_path,
                      ", has not answered for ", ToSeconds(waited),
                      " s: it hangs or is stopped, or the machine is overloaded; try again (its "
                      "daemon replaces one that hangs), or end it with kill -9 ",
                      pid, ", which costs the job nothing");
}

}  // namespace

// Kept alive by its timers and by the open feed's callbacks, which look at `ended` first.
struct JobWatch::State : std::enable_shared_from_this<JobWatch::State> {
  using LogKey = std::tuple<int64_t, int, uint32_t>;  // epoch, rank, stream

  State(Loop* the_loop, std::string path, WatchOptions the_options, Callbacks the_callbacks)
      : loop(the_loop),
        socket_path(std::move(path)),
        options(the_options),
        callbacks(std::move(the_callbacks)) {}

  void Dial();
  void Retry(const absl::Status& why);
  void Message(v1::JobUpdate message);
  // Leaves of an output the part that was not seen yet; false: none.
  bool TakeNew(OutputBytes& output);
  void End(const absl::Status& status);

  Loop* const loop;
  const std::string socket_path;
  const WatchOptions options;
  Callbacks callbacks;
  Instant give_up = kNever;  // unless somebody answers; kNever: somebody does
  Loop::TimerId silence{};
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
  feed->on_message = [self = shared_from_this()](v1::JobUpdate message) {
    self->Message(std::move(message));
  };
  feed->on_closed = [self = shared_from_this()](const absl::Status& status) {
    self->feed = nullptr;
    self->loop->Cancel(self->silence);
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
  silence = loop->After(kAnswerPatience, [self = shared_from_this(), pid = dialled->pid] {
    if (self->feed != nullptr) self->feed->Cancel();
    self->End(absl::UnavailableError(NotAnswering(self->socket_path, pid, kAnswerPatience)));
  });
}

void JobWatch::State::Retry(const absl::Status& why) {
  // From the first failure on, not from the last message: this process may have been stopped.
  if (give_up == kNever) give_up = Now() + options.patience;
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
  if (output.offset - output.skipped > next || end <= next) return false;
  output.skipped = output.offset - std::min(output.offset, next);
  const uint64_t begin = std::max(output.offset, next);
  output.data.erase(0, begin - output.offset);
  output.offset = begin;
  next = end;
  return true;
}

void JobWatch::State::Message(v1::JobUpdate message) {
  if (ended) return;
  loop->Cancel(silence);
  give_up = kNever;
  backoff = milliseconds(10);
  std::optional<JobUpdate> update = FromProto(std::move(message));
  if (!update.has_value()) return;
  if (auto* batch = std::get_if<OutputBatch>(&*update)) {
    std::erase_if(*batch, [this](OutputBytes& output) { return !TakeNew(output); });
  }
  if (std::holds_alternative<JobEnded>(*update)) finished = true;
  callbacks.on_update(*std::move(update));
  // The coordinator waits for that, so that it does not end while somebody still reads.
  if (finished && feed != nullptr) feed->Cancel();
}

void JobWatch::State::End(const absl::Status& status) {
  if (std::exchange(ended, true)) return;
  loop->Cancel(silence);
  callbacks.on_end(status);
}

JobWatch::JobWatch(Loop* loop, std::string socket_path, WatchOptions options, Callbacks callbacks)
    : state_(std::make_shared<State>(loop, std::move(socket_path), options, std::move(callbacks))) {
  state_->Dial();
}

JobWatch::~JobWatch() {
  state_->ended = true;
  state_->loop->Cancel(state_->silence);
  if (state_->feed != nullptr) state_->feed->Cancel();
}

namespace {

v1::StopRequest RequestFor(const StopAsked& order) {
  v1::StopRequest request;
  request.set_by(order.by);
  request.set_checkpoint(order.checkpoint);
  request.set_now(order.now);
  request.set_notice(order.notice);
  return request;
}

// Kept alive by its timers and by the open call.
struct StopCall : std::enable_shared_from_this<StopCall> {
  Loop* loop = nullptr;
  std::string socket_path;
  v1::StopRequest request;
  v1::StopReply reply;
  Duration patience{0};
  Instant give_up;
  Duration backoff = milliseconds(10);
  int pid = 0;
  std::unique_ptr<v1::JobService::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  std::function<void(const absl::Status&)> done;

  void Dial() {
    absl::StatusOr<DialledChannel> dialled = DialUnix(socket_path);
    if (!dialled.ok()) return Answered(dialled.status());
    pid = dialled->pid;
    stub = v1::JobService::NewStub(dialled->channel);
    context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + (give_up - Now()));
    stub->async()->Stop(context.get(), &request, &reply,
                        [self = shared_from_this()](const grpc::Status& status) {
                          self->loop->Post([self, status] { self->Answered(FromGrpc(status)); });
                        });
  }
  void Answered(const absl::Status& status) {
    if (absl::IsUnavailable(status) && Now() + backoff < give_up) {
      loop->After(backoff, [self = shared_from_this()] { self->Dial(); });
      backoff = std::min<Duration>(backoff * 2, milliseconds(250));
    } else if (absl::IsDeadlineExceeded(status)) {
      done(absl::DeadlineExceededError(NotAnswering(socket_path, pid, patience)));
    } else {
      done(status);
    }
  }
};

}  // namespace

void AskToStop(Loop* loop, const std::string& socket_path, const StopAsked& order,
               Duration patience, std::function<void(const absl::Status& status)> done) {
  auto call = std::make_shared<StopCall>();
  call->loop = loop;
  call->socket_path = socket_path;
  call->request = RequestFor(order);
  call->patience = patience;
  call->give_up = Now() + patience;
  call->done = std::move(done);
  call->Dial();
}

struct JobClient::Channel {
  ServiceAddress address;

  // One call on a fresh connection: the coordinator may have been replaced since the last one.
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                    const Request& request, Response* response, Duration timeout) {
    const Instant give_up = Now() + timeout;
    for (Duration backoff = milliseconds(10);; backoff *= 2) {
      absl::Status status;
      int pid = 0;
      if (absl::StatusOr<DialledChannel> dialled = Dial(address); dialled.ok()) {
        pid = dialled->pid;
        const auto stub = v1::JobService::NewStub(dialled->channel);
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + (give_up - Now()));
        status = FromGrpc(((*stub).*method)(&context, request, response));
      } else {
        status = dialled.status();
      }
      if (absl::IsDeadlineExceeded(status)) {
        return absl::DeadlineExceededError(NotAnswering(address.ToString(), pid, timeout));
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
    : JobClient(ServiceAddress::Unix(socket_path)) {}
JobClient::JobClient(ServiceAddress coordinator)
    : channel_(std::make_unique<Channel>(Channel{std::move(coordinator)})) {}
JobClient::~JobClient() = default;

absl::StatusOr<JobDescription> JobClient::Describe(Duration timeout) {
  v1::JobState state;
  RETURN_IF_ERROR(
      channel_->Call(&v1::JobService::Stub::Describe, v1::DescribeRequest(), &state, timeout));
  return FromProto(state);
}

absl::Status JobClient::Stop(const StopAsked& order, Duration timeout) {
  v1::StopReply reply;
  return channel_->Call(&v1::JobService::Stub::Stop, RequestFor(order), &reply, timeout);
}

absl::Status JobClient::Signal(int signo, const std::vector<int>& ranks, Duration timeout) {
  v1::SignalRequest request;
  request.mutable_ranks()->Assign(ranks.begin(), ranks.end());
  request.set_signo(signo);
  v1::SignalReply reply;
  return channel_->Call(&v1::JobService::Stub::Signal, request, &reply, timeout);
}

absl::Status JobClient::KillNode(const std::string& node, Duration timeout) {
  v1::KillNodeRequest request;
  request.set_node(node);
  v1::KillNodeReply reply;
  return channel_->Call(&v1::JobService::Stub::KillNode, request, &reply, timeout);
}

absl::Status JobClient::Drain(const DrainAsked& order, Duration timeout) {
  v1::DrainRequest request;
  request.set_node(order.node);
  request.set_drain(order.drain);
  request.set_by(order.by);
  v1::DrainReply reply;
  return channel_->Call(&v1::JobService::Stub::Drain, request, &reply, timeout);
}

}  // namespace trainctl

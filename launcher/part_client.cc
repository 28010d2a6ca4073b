#include "launcher/part_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/wire.h"
#include "proto/job.grpc.pb.h"
#include "proto/node.grpc.pb.h"
#include "runtime/rpc/rpc_status.h"
#include "runtime/rpc/streams.h"

namespace trainctl {
namespace {

constexpr auto kAnswerTime = std::chrono::seconds(10);
constexpr Duration kFirstPause = milliseconds(20);
constexpr Duration kLongestPause = seconds(1);

}  // namespace

// Kept alive by the call that is under way, which looks at `ended` first.
struct Enlistment::State : std::enable_shared_from_this<Enlistment::State> {
  struct Call {
    std::unique_ptr<v1::JobService::Stub> stub;
    grpc::ClientContext context;
    v1::EnlistReply reply;
  };

  void Ask();
  void Answered(Call& call, const absl::Status& status);

  Loop* loop = nullptr;
  ServiceAddress coordinator;
  v1::EnlistRequest request;
  Callbacks callbacks;
  std::shared_ptr<Call> call;
  Duration pause = kFirstPause;
  Loop::TimerId timer{};
  bool ended = false;
};

Enlistment::Enlistment(Loop* loop, ServiceAddress coordinator, const NodeRole& role,
                       Callbacks callbacks)
    : state_(std::make_shared<State>()) {
  state_->loop = loop;
  state_->coordinator = std::move(coordinator);
  state_->callbacks = std::move(callbacks);
  state_->request.set_claim(role.claim);
  state_->request.set_min_nodes(role.min_nodes);
  state_->request.set_max_nodes(role.max_nodes);
  state_->Ask();
}

Enlistment::~Enlistment() {
  state_->ended = true;
  state_->loop->Cancel(state_->timer);
  if (state_->call != nullptr) state_->call->context.TryCancel();
}

void Enlistment::State::Ask() {
  call = std::make_shared<Call>();
  absl::StatusOr<DialledChannel> dialled = Dial(coordinator);
  if (!dialled.ok()) return Answered(*call, dialled.status());
  call->stub = v1::JobService::NewStub(dialled->channel);
  call->context.set_deadline(std::chrono::system_clock::now() + kAnswerTime);
  call->stub->async()->Enlist(
      &call->context, &request, &call->reply,
      [self = shared_from_this(), asked = call](const grpc::Status& status) {
        self->loop->Post([self, asked, status = FromGrpc(status)] {
          if (!self->ended) self->Answered(*asked, status);
        });
      });
}

void Enlistment::State::Answered(Call& asked, const absl::Status& result) {
  const absl::Status status = ExplainCall(coordinator, result);
  if (status.ok()) {
    ended = true;
    Enlisted enlisted{asked.reply.job_id(), asked.reply.head(), Duration(asked.reply.lease_ns()),
                      Duration(asked.reply.orphan_timeout_ns()), coordinator.endpoint};
    const std::string literal = LiteralOf(asked.context.peer());
    if (!literal.empty()) enlisted.coordinator.name = literal;
    return callbacks.on_answer(std::move(enlisted));
  }
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
    ended = true;
    return callbacks.on_answer(status);
  }
  timer = loop->After(pause, [self = shared_from_this()] {
    if (!self->ended) self->Ask();
  });
  pause = std::min<Duration>(pause * 2, kLongestPause);
  callbacks.on_waiting(status);
}

struct PartWatch::State : std::enable_shared_from_this<PartWatch::State> {
  void Begin(const std::string& daemon_socket);

  Loop* loop = nullptr;
  v1::TakePartRequest request;
  Callbacks callbacks;
  ClientFeed<v1::PartUpdate>* feed = nullptr;  // deletes itself
  bool told_end = false;
  bool ended = false;
};

PartWatch::PartWatch(Loop* loop, const std::string& daemon_socket, const PartRequest& request,
                     Callbacks callbacks)
    : state_(std::make_shared<State>()) {
  state_->loop = loop;
  state_->callbacks = std::move(callbacks);
  v1::NodePart* part = state_->request.mutable_part();
  *part = ToProto(request.part);
  part->set_job_id(request.job.job_id);
  part->set_lease_ns(request.job.lease.count());
  part->set_coordinator(request.job.coordinator.ToString());
  part->set_head(request.job.head);
  part->mutable_tls()->set_key(request.tls.key);
  part->mutable_tls()->set_certificate(request.tls.certificate);
  part->mutable_tls()->set_private_key(request.tls.private_key);
  part->mutable_tls()->set_authority(request.tls.authority);
  for (const std::string& entry : request.env) part->add_env(entry);
  part->set_cwd(request.cwd);
  state_->request.set_orphan_timeout_ns(request.job.orphan_timeout.count());
  state_->Begin(daemon_socket);
}

PartWatch::~PartWatch() {
  state_->ended = true;
  if (state_->feed != nullptr) state_->feed->Cancel();
}

void PartWatch::State::Begin(const std::string& daemon_socket) {
  absl::StatusOr<DialledChannel> dialled = DialUnix(daemon_socket);
  if (!dialled.ok()) {
    loop->Post([self = shared_from_this(), status = dialled.status()] {
      if (!self->ended) self->callbacks.on_end(status);
    });
    return;
  }
  feed = new ClientFeed<v1::PartUpdate>(loop);
  feed->on_message = [self = shared_from_this()](const v1::PartUpdate& update) {
    if (self->ended) return;
    const PartStanding standing{static_cast<PartStanding::Kind>(update.standing()),
                                update.reason(),
                                update.outcome(),
                                update.exit_status(),
                                {update.worker_statuses().begin(), update.worker_statuses().end()}};
    self->told_end =
        standing.kind == PartStanding::Kind::kOver || standing.kind == PartStanding::Kind::kLeft;
    self->callbacks.on_standing(standing);
  };
  feed->on_closed = [self = shared_from_this()](const absl::Status& status) {
    self->feed = nullptr;
    if (!self->ended) self->callbacks.on_end(self->told_end ? absl::OkStatus() : status);
  };
  // The call keeps the channel alive; the stub is needed to start it only.
  v1::NodeService::NewStub(dialled->channel)->async()->TakePart(feed->context(), &request, feed);
  feed->Begin();
}

}  // namespace trainctl

#include "launcher/job_service.h"

#include <csignal>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/rpc/call_scope.h"
#include "runtime/rpc/reply.h"
#include "runtime/rpc/tls.h"

namespace trainctl {
namespace {

constexpr size_t kMaxNameBytes = 200;  // of who asked

std::string WhoAsked(const std::string& by) {
  return by.empty() ? "somebody who did not say who" : by.substr(0, kMaxNameBytes);
}

}  // namespace

grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeOrder>* JobServiceImpl::Join(
    grpc::CallbackServerContext* context) {
  const CallScope scope;
  auto* stream = new NodeStream(loop_);
  loop_->Post([this, stream, caller = CallerOf(*context)] {
    if (!caller.ok()) return stream->Finish(caller.status());
    driver_->AddNode(stream, *caller);
  });
  return stream;
}

grpc::ServerWriteReactor<v1::JobUpdate>* JobServiceImpl::Watch(grpc::CallbackServerContext*,
                                                               const v1::WatchRequest* request) {
  const CallScope scope;
  auto* feed = new WatchFeed(loop_);
  loop_->Post([this, feed, wanted = *request] { driver_->AddWatcher(feed, wanted); });
  return feed;
}

grpc::ServerUnaryReactor* JobServiceImpl::Describe(grpc::CallbackServerContext* context,
                                                   const v1::DescribeRequest*,
                                                   v1::JobState* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Post([this, reply = Reply<v1::JobState>(reactor, response)]() mutable {
    reply.Send(driver_->State());
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::Enlist(grpc::CallbackServerContext* context,
                                                 const v1::EnlistRequest* request,
                                                 v1::EnlistReply* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Post([this, request, reply = Reply<v1::EnlistReply>(reactor, response)]() mutable {
    absl::StatusOr<v1::EnlistReply> answer = driver_->Enlist(*request);
    if (!answer.ok()) return reply.Fail(answer.status());
    reply.Send(*std::move(answer));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::Stop(grpc::CallbackServerContext* context,
                                               const v1::StopRequest* request,
                                               v1::StopReply* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const StopAsked order{WhoAsked(request->by()), request->checkpoint(), request->now(),
                        request->notice()};
  loop_->Post([this, order, reply = Reply<v1::StopReply>(reactor, response)]() mutable {
    driver_->Stop(order);
    reply.Send({});
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::Signal(grpc::CallbackServerContext* context,
                                                 const v1::SignalRequest* request,
                                                 v1::SignalReply* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const int signo = request->signo();
  std::vector<int> ranks(request->ranks().begin(), request->ranks().end());
  Reply<v1::SignalReply> reply(reactor, response);
  if (signo < 1 || signo >= NSIG) {
    reply.Fail(absl::InvalidArgumentError(
        absl::StrCat("signal ", signo, ": signals go from 1 to ", NSIG - 1)));
    return reactor;
  }
  loop_->Post([this, signo, ranks = std::move(ranks), reply = std::move(reply)]() mutable {
    const absl::Status status = driver_->Signal(signo, ranks);
    if (!status.ok()) return reply.Fail(status);
    reply.Send({});
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::KillNode(grpc::CallbackServerContext* context,
                                                   const v1::KillNodeRequest* request,
                                                   v1::KillNodeReply* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Post([this, node = request->node(),
               reply = Reply<v1::KillNodeReply>(reactor, response)]() mutable {
    const absl::Status status = driver_->KillNode(node);
    if (!status.ok()) return reply.Fail(status);
    reply.Send({});
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::Drain(grpc::CallbackServerContext* context,
                                                const v1::DrainRequest* request,
                                                v1::DrainReply* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  DrainAsked order{request->node(), request->drain(), WhoAsked(request->by())};
  loop_->Post(
      [this, order = std::move(order), reply = Reply<v1::DrainReply>(reactor, response)]() mutable {
        const absl::Status status = driver_->Drain(order);
        if (!status.ok()) return reply.Fail(status);
        reply.Send({});
      });
  return reactor;
}

}  // namespace trainctl

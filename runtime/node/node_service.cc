#include "runtime/node/node_service.h"

#include <utility>

#include "runtime/rpc/call_scope.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/reply.h"

namespace trainctl {

grpc::ServerUnaryReactor* NodeServiceImpl::Submit(grpc::CallbackServerContext* context,
                                                  const v1::SubmitRequest* request,
                                                  v1::SubmitReply* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // gRPC keeps the request until the call is answered, which the reply sees to.
  loop_->Post([this, request, reply = Reply<v1::SubmitReply>(reactor, response)]() mutable {
    daemon_->Submit(*request, std::move(reply));
  });
  return reactor;
}

grpc::ServerUnaryReactor* NodeServiceImpl::Resume(grpc::CallbackServerContext* context,
                                                  const v1::ResumeRequest* request,
                                                  v1::SubmitReply* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Post([this, request, reply = Reply<v1::SubmitReply>(reactor, response)]() mutable {
    daemon_->Resume(*request, std::move(reply));
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::PartUpdate>* NodeServiceImpl::TakePart(
    grpc::CallbackServerContext*, const v1::TakePartRequest* request) {
  const CallScope scope;
  auto* feed = new PartFeed(loop_);
  loop_->Post([this, feed, wanted = *request] { daemon_->TakePart(wanted, feed); });
  return feed;
}

grpc::ServerUnaryReactor* NodeServiceImpl::LeaveJob(grpc::CallbackServerContext* context,
                                                    const v1::LeaveJobRequest* request,
                                                    v1::LeaveJobReply* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Post([this, request, reply = Reply<v1::LeaveJobReply>(reactor, response)]() mutable {
    daemon_->Leave(*request, std::move(reply));
  });
  return reactor;
}

grpc::ServerUnaryReactor* NodeServiceImpl::DescribeNode(grpc::CallbackServerContext* context,
                                                        const v1::DescribeNodeRequest*,
                                                        v1::NodeDescription* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Post([this, reply = Reply<v1::NodeDescription>(reactor, response)]() mutable {
    reply.Send(daemon_->Describe());
  });
  return reactor;
}

grpc::ServerUnaryReactor* PeerServiceImpl::Invite(grpc::CallbackServerContext* context,
                                                  const v1::InviteRequest* request,
                                                  v1::InviteReply* response) {
  const CallScope scope;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Post([this, request, caller = LiteralOf(context->peer()),
               reply = Reply<v1::InviteReply>(reactor, response)]() mutable {
    daemon_->Invite(*request, caller, std::move(reply));
  });
  return reactor;
}

}  // namespace trainctl

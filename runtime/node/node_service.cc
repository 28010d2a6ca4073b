#include "runtime/node/node_service.h"

#include <utility>

#include "runtime/rpc/reply.h"

namespace trainctl {

grpc::ServerUnaryReactor* NodeServiceImpl::Submit(grpc::CallbackServerContext* context,
                                                  const v1::SubmitRequest* request,
                                                  v1::SubmitReply* response) {
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
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Post([this, request, reply = Reply<v1::SubmitReply>(reactor, response)]() mutable {
    daemon_->Resume(*request, std::move(reply));
  });
  return reactor;
}

grpc::ServerUnaryReactor* NodeServiceImpl::DescribeNode(grpc::CallbackServerContext* context,
                                                        const v1::DescribeNodeRequest*,
                                                        v1::NodeDescription* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Post([this, reply = Reply<v1::NodeDescription>(reactor, response)]() mutable {
    reply.Send(daemon_->Describe());
  });
  return reactor;
}

}  // namespace trainctl

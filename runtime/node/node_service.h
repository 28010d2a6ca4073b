// NodeService on gRPC's threads: posts to the loop, where the daemon answers.
#ifndef TRAINCTL_RUNTIME_NODE_NODE_SERVICE_H_
#define TRAINCTL_RUNTIME_NODE_NODE_SERVICE_H_

#include "proto/node.grpc.pb.h"
#include "runtime/base/loop.h"
#include "runtime/node/daemon.h"

namespace trainctl {

class NodeServiceImpl final : public v1::NodeService::CallbackService {
 public:
  NodeServiceImpl(Loop* loop, Daemon* daemon) : loop_(loop), daemon_(daemon) {}

 private:
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const v1::SubmitRequest* request,
                                   v1::SubmitReply* response) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context,
                                   const v1::ResumeRequest* request,
                                   v1::SubmitReply* response) override;
  grpc::ServerWriteReactor<v1::PartUpdate>* TakePart(grpc::CallbackServerContext* context,
                                                     const v1::TakePartRequest* request) override;
  grpc::ServerUnaryReactor* LeaveJob(grpc::CallbackServerContext* context,
                                     const v1::LeaveJobRequest* request,
                                     v1::LeaveJobReply* response) override;
  grpc::ServerUnaryReactor* DescribeNode(grpc::CallbackServerContext* context,
                                         const v1::DescribeNodeRequest* request,
                                         v1::NodeDescription* response) override;

  Loop* loop_;
  Daemon* daemon_;
};

// What other nodes may ask, over TCP.
class PeerServiceImpl final : public v1::PeerService::CallbackService {
 public:
  PeerServiceImpl(Loop* loop, Daemon* daemon) : loop_(loop), daemon_(daemon) {}

 private:
  grpc::ServerUnaryReactor* Invite(grpc::CallbackServerContext* context,
                                   const v1::InviteRequest* request,
                                   v1::InviteReply* response) override;

  Loop* loop_;
  Daemon* daemon_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_NODE_SERVICE_H_

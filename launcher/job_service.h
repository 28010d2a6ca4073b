// JobService on gRPC's threads: posts to the loop, where the driver answers.
#ifndef TRAINCTL_LAUNCHER_JOB_SERVICE_H_
#define TRAINCTL_LAUNCHER_JOB_SERVICE_H_

#include "launcher/driver.h"
#include "proto/job.grpc.pb.h"
#include "runtime/base/loop.h"

namespace trainctl {

class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  JobServiceImpl(Loop* loop, Driver* driver) : loop_(loop), driver_(driver) {}

 private:
  grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeOrder>* Join(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::JobUpdate>* Watch(grpc::CallbackServerContext* context,
                                                 const v1::WatchRequest* request) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::JobState* response) override;
  grpc::ServerUnaryReactor* Enlist(grpc::CallbackServerContext* context,
                                   const v1::EnlistRequest* request,
                                   v1::EnlistReply* response) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const v1::StopRequest* request, v1::StopReply* response) override;
  grpc::ServerUnaryReactor* Signal(grpc::CallbackServerContext* context,
                                   const v1::SignalRequest* request,
                                   v1::SignalReply* response) override;
  grpc::ServerUnaryReactor* KillNode(grpc::CallbackServerContext* context,
                                     const v1::KillNodeRequest* request,
                                     v1::KillNodeReply* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainReply* response) override;

  Loop* loop_;
  Driver* driver_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_JOB_SERVICE_H_

#include "launcher/node_client.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "launcher/wire.h"
#include "proto/node.grpc.pb.h"
#include "runtime/base/status.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/rpc_status.h"

namespace trainctl {

struct NodeClient::Channel {
  std::string socket_path;

  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::NodeService::Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                    const Request& request, Response* response, Duration timeout) {
    ASSIGN_OR_RETURN(const DialledChannel dialled, DialUnix(socket_path));
    const auto stub = v1::NodeService::NewStub(dialled.channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    absl::Status status = FromGrpc(((*stub).*method)(&context, request, response));
    if (!absl::IsDeadlineExceeded(status)) return status;
    return absl::DeadlineExceededError(
        absl::StrCat("process ", dialled.pid, ", the daemon at ", socket_path,
                     ", has not answered for ", ToSeconds(timeout),
                     " s: it hangs or is stopped, or the machine or the disk is overloaded; "
                     "end it with kill -9 ",
                     dialled.pid, " (its jobs live on) and try again"));
  }
};

namespace {

StartedJob FromProto(const v1::SubmitReply& m) {
  return {m.job_id(), m.job_folder(), m.job_socket()};
}

}  // namespace

NodeClient::NodeClient(const std::string& socket_path)
    : channel_(std::make_unique<Channel>(Channel{socket_path})) {}
NodeClient::~NodeClient() = default;

absl::Status NodeClient::LeaveJob(const std::string& job_id, Duration timeout) {
  v1::LeaveJobRequest request;
  request.set_job_id(job_id);
  v1::LeaveJobReply reply;
  return channel_->Call(&v1::NodeService::Stub::LeaveJob, request, &reply, timeout);
}

absl::StatusOr<StartedJob> NodeClient::Submit(const JobSpec& spec, const OwnPart& part,
                                              Duration timeout) {
  v1::SubmitRequest request;
  *request.mutable_part() = ToProto(part);
  *request.mutable_spec() = ToProto(spec);
  v1::SubmitReply reply;
  RETURN_IF_ERROR(channel_->Call(&v1::NodeService::Stub::Submit, request, &reply, timeout));
  return FromProto(reply);
}

absl::StatusOr<StartedJob> NodeClient::Resume(const std::string& job_folder, Duration timeout) {
  v1::ResumeRequest request;
  request.set_job_folder(job_folder);
  v1::SubmitReply reply;
  RETURN_IF_ERROR(channel_->Call(&v1::NodeService::Stub::Resume, request, &reply, timeout));
  return FromProto(reply);
}

absl::StatusOr<NodeDescribed> NodeClient::Describe(Duration timeout) {
  v1::NodeDescription description;
  RETURN_IF_ERROR(channel_->Call(&v1::NodeService::Stub::DescribeNode, v1::DescribeNodeRequest(),
                                 &description, timeout));
  return NodeDescribed{
      description.node(),        description.version(),
      description.incarnation(), description.pid(),
      description.cores(),       {description.jobs().begin(), description.jobs().end()},
  };
}

}  // namespace trainctl

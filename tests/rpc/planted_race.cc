// A service with a race, for the one test that ThreadSanitizer reports it although gRPC is on the
// stack: the loop's thread counts what the call counts.
#include <stdlib.h>

#include <string>
#include <thread>

#include "proto/job.grpc.pb.h"
#include "runtime/base/loop.h"
#include "runtime/rpc/call_scope.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/reply.h"
#include "runtime/rpc/unix_listener.h"

namespace trainctl {
namespace {

class RacyService final : public v1::JobService::CallbackService {
 public:
  explicit RacyService(Loop* loop) : loop_(loop) {}

 private:
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest*, v1::JobState* response) override {
    const CallScope scope;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    ++calls_;
    loop_->Post([this, reply = Reply<v1::JobState>(reactor, response)]() mutable {
      reply.Send({});
      ++calls_;
      if (calls_ > 1'000'000) loop_->Quit(3);
    });
    return reactor;
  }
  Loop* loop_;
  int64_t calls_ = 0;
};

int Main() {
  std::string folder = "/tmp/trainctl-race-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  const std::string socket = folder + "/socket";
  Loop loop;
  RacyService service(&loop);
  auto listener = UnixListener::Listen(&loop, socket, {&service}, UnixListener::AdmitOwnerAndRoot);
  if (!listener.ok()) return 1;
  std::thread thread([&loop] { loop.Run(); });
  const absl::StatusOr<DialledChannel> dialled = DialUnix(socket);
  if (!dialled.ok()) return 1;
  const auto stub = v1::JobService::NewStub(dialled->channel);
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext call;
    v1::JobState state;
    if (!stub->Describe(&call, v1::DescribeRequest(), &state).ok()) return 1;
  }
  loop.Post([&] { (*listener)->Close(); });
  loop.Quit(0);
  thread.join();
  return ::system(("rm -r " + folder).c_str()) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace trainctl

int main() { return trainctl::Main(); }

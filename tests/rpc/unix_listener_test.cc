// Who may call, and what a call may be.
#include "runtime/rpc/unix_listener.h"

#include <grpcpp/generic/generic_stub.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job.grpc.pb.h"
#include "proto/node.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/limits.h"
#include "runtime/rpc/reply.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

// Answers Describe by what the test says; counts every call that reaches it.
class LocalService final : public v1::JobService::CallbackService {
 public:
  std::function<void(Reply<v1::JobState>)> on_describe = [](Reply<v1::JobState> reply) {
    reply.Send({});
  };
  std::atomic<int> calls{0};

 private:
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest*, v1::JobState* response) override {
    ++calls;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    on_describe(Reply<v1::JobState>(reactor, response));
    return reactor;
  }
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const v1::StopRequest*,
                                 v1::StopReply*) override {
    ++calls;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class UnixListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = "/tmp/trainctl-rpc-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void Listen(UnixListener::Admit admit = UnixListener::AdmitOwnerAndRoot) {
    auto listener = UnixListener::Listen(&loop_, Socket(), {&service_}, std::move(admit));
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    thread_ = std::thread([this] { loop_.Run(); });
  }
  void TearDown() override {
    if (thread_.joinable()) {
      loop_.Post([this] { listener_->Close(); });
      loop_.Quit(0);
      thread_.join();
    }
    listener_.reset();
    ::rmdir(folder_.c_str());
  }
  std::string Socket() const { return folder_ + "/s"; }
  std::unique_ptr<v1::JobService::Stub> Dial() {
    auto dialled = DialUnix(Socket());
    EXPECT_TRUE(dialled.ok()) << dialled.status();
    return v1::JobService::NewStub(dialled->channel);
  }

  std::string folder_;
  LocalService service_;
  Loop loop_;
  std::unique_ptr<UnixListener> listener_;
  std::thread thread_;
};

TEST_F(UnixListenerTest, AnswersItsOwner) {
  Listen();
  grpc::ClientContext context;
  v1::JobState state;
  EXPECT_TRUE(Dial()->Describe(&context, {}, &state).ok());
  EXPECT_EQ(service_.calls, 1);
}

TEST_F(UnixListenerTest, TakesTheCallersIdentityFromTheKernel) {
  std::atomic<uid_t> seen{12345};
  Listen([&seen](const ucred& caller) {
    seen = caller.uid;
    return true;
  });
  grpc::ClientContext context;
  v1::JobState state;
  EXPECT_TRUE(Dial()->Describe(&context, {}, &state).ok());
  EXPECT_EQ(seen, ::getuid());
}

TEST_F(UnixListenerTest, AdmitsTheOwnerAndRootAndNobodyElse) {
  EXPECT_TRUE(UnixListener::AdmitOwnerAndRoot({1, ::geteuid(), 0}));
  EXPECT_TRUE(UnixListener::AdmitOwnerAndRoot({1, 0, 0}));
  EXPECT_FALSE(UnixListener::AdmitOwnerAndRoot({1, ::geteuid() + 1, 0}));
  EXPECT_FALSE(UnixListener::AdmitOwnerAndRoot({1, 65534, 0}));
}

// Every method of the protocol, so that one added later cannot be forgotten.
TEST_F(UnixListenerTest, RefusesEveryCallOfAStranger) {
  Listen([](const ucred&) { return false; });
  auto dialled = DialUnix(Socket());
  ASSERT_TRUE(dialled.ok());
  int methods = 0;
  for (const auto* file :
       {v1::JobSpec::descriptor()->file(), v1::SubmitRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m, ++methods) {
        const auto* method = file->service(s)->method(m);
        const std::string path = "/" + method->service()->full_name() + "/" + method->name();
        grpc::ClientContext context;
        const grpc::Slice nothing;
        grpc::ByteBuffer request(&nothing, 1);
        grpc::ByteBuffer response;
        grpc::Status status;
        absl::Notification answered;
        grpc::GenericStub(dialled->channel)
            .UnaryCall(&context, path, {}, &request, &response, [&](grpc::Status got) {
              status = std::move(got);
              answered.Notify();
            });
        ASSERT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(20))) << path;
        EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << path;
        EXPECT_THAT(status.error_message(), HasSubstr("its owner"));
      }
    }
  }
  EXPECT_GE(methods, 8);
  EXPECT_EQ(service_.calls, 0);
}

TEST_F(UnixListenerTest, AStrangerDoesNotSpoilIt) {
  std::atomic<int> connections{0};
  Listen([&connections](const ucred&) { return ++connections > 1; });
  v1::JobState state;
  grpc::ClientContext first;
  const auto stranger = Dial();
  EXPECT_EQ(stranger->Describe(&first, {}, &state).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  grpc::ClientContext second;
  EXPECT_TRUE(Dial()->Describe(&second, {}, &state).ok());
}

TEST_F(UnixListenerTest, RefusesAMessageAboveTheLimit) {
  Listen();
  grpc::ClientContext context;
  v1::StopRequest request;
  request.set_by(std::string(kMaxMessageBytes + 1000, 'x'));
  v1::StopReply reply;
  EXPECT_EQ(Dial()->Stop(&context, request, &reply).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(UnixListenerTest, AReplyThatIsDroppedAnswersOnce) {
  service_.on_describe = [](Reply<v1::JobState> reply) { const auto dropped = std::move(reply); };
  Listen();
  grpc::ClientContext context;
  v1::JobState state;
  const grpc::Status status = Dial()->Describe(&context, {}, &state);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("dropped"));
}

TEST_F(UnixListenerTest, AReplyOutlivesItsCaller) {
  std::optional<Reply<v1::JobState>> kept;
  service_.on_describe = [&kept](Reply<v1::JobState> reply) { kept.emplace(std::move(reply)); };
  Listen();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  v1::JobState state;
  EXPECT_EQ(Dial()->Describe(&context, {}, &state).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  v1::JobState late;
  late.set_name("late");
  kept->Send(std::move(late));
}

TEST_F(UnixListenerTest, TwoCannotListenAtOnePlace) {
  Listen();
  Loop other;
  EXPECT_EQ(UnixListener::Listen(&other, Socket(), {&service_}).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(UnixListenerTest, NobodyListeningIsUnavailable) {
  EXPECT_EQ(DialUnix(Socket()).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace trainctl

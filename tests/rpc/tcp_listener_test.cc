// Who is let in over TCP, by what is proved and not by what is said.
#include "runtime/rpc/tcp_listener.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job.grpc.pb.h"
#include "runtime/base/clock.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/limits.h"
#include "runtime/rpc/streams.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;
using NodeStream = ServerStream<v1::NodeMessage, v1::NodeOrder>;

constexpr int64_t kDay = 86400;

int64_t NowSeconds() { return WallClockNanos() / 1'000'000'000; }

const Authority& AuthorityOf(uint8_t number) {
  static std::map<uint8_t, Authority>* all = new std::map<uint8_t, Authority>;
  const auto found = all->find(number);
  if (found != all->end()) return found->second;
  ClusterKey key;
  key.fill(number);
  return all->emplace(number, Authority::Derive(key).value()).first->second;
}

TlsIdentity Identity(const PeerName& name, uint8_t authority = 1, int64_t issued = NowSeconds()) {
  return AuthorityOf(authority).Issue(name, issued, seconds(kDay)).value();
}

// Tells who called; keeps streams open.
class FakeService final : public v1::JobService::CallbackService {
 public:
  explicit FakeService(Loop* loop) : loop_(loop) {}
  std::atomic<int> calls{0};
  std::atomic<int> streams{0};

 private:
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest*, v1::JobState* response) override {
    ++calls;
    const absl::StatusOr<std::optional<PeerName>> caller = CallerOf(*context);
    response->set_name(caller.ok() && caller->has_value() ? (*caller)->ToString() : "nobody");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const v1::StopRequest*,
                                 v1::StopReply*) override {
    ++calls;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeOrder>* Join(
      grpc::CallbackServerContext*) override {
    auto* stream = new NodeStream(loop_);
    ++streams;
    stream->on_closed = [this] { --streams; };
    loop_->Post([stream] { stream->Begin(); });
    return stream;
  }
  Loop* loop_;
};

class TcpListenerTest : public ::testing::Test {
 protected:
  void Listen(const TlsIdentity& identity = Identity(PeerName::Node("head"))) {
    auto listener = TcpListener::Listen(&loop_, {"127.0.0.1", 0}, identity, {&service_});
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    thread_ = std::thread([this] { loop_.Run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    loop_.Post([this] { listener_->Close(); });
    loop_.Quit(0);
    thread_.join();
    // Streams still open are cancelled, which needs the loop.
    std::thread end([this] { loop_.Run(); });
    listener_.reset();
    loop_.Quit(0);
    end.join();
  }
  ServiceAddress Address(const TlsIdentity& identity, const std::string& node = "head") {
    return {"", {"127.0.0.1", listener_->port()}, identity, node};
  }
  grpc::Status Call(const ServiceAddress& address, std::string* caller = nullptr) {
    const absl::StatusOr<DialledChannel> dialled = Dial(address);
    EXPECT_TRUE(dialled.ok()) << dialled.status();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::JobState state;
    const grpc::Status status =
        v1::JobService::NewStub(dialled->channel)->Describe(&context, {}, &state);
    if (caller != nullptr) *caller = state.name();
    return status;
  }
  void ExpectRefused(const ServiceAddress& address, absl::StatusCode code,
                     const std::string& says) {
    const absl::Status status = FromGrpc(Call(address));
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    const absl::Status explained = ExplainCall(address, status);
    EXPECT_EQ(explained.code(), code) << explained;
    EXPECT_THAT(std::string(explained.message()), HasSubstr(says));
    EXPECT_EQ(service_.calls, 0);
  }
  Fd Connect() {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(listener_->port()));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  int OpenDescriptors() {
    int count = 0;
    for (int fd = 0; fd < 4096; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  }

  Loop loop_;
  FakeService service_{&loop_};
  std::unique_ptr<TcpListener> listener_;
  std::thread thread_;
};

TEST_F(TcpListenerTest, KnowsNodesAndItsUserByTheirCertificates) {
  Listen();
  std::string caller;
  EXPECT_TRUE(Call(Address(Identity(PeerName::Node("n7"))), &caller).ok());
  EXPECT_EQ(caller, "node:n7");
  EXPECT_TRUE(Call(Address(Identity(PeerName::User(::geteuid()))), &caller).ok());
  EXPECT_EQ(caller, absl::StrCat("user:", ::geteuid()));
}

TEST_F(TcpListenerTest, CallersExpectANodeByItsName) {
  Listen(Identity(PeerName::Node("head.site.org")));
  const TlsIdentity ours = Identity(PeerName::Node("n7"));
  for (const char* name : {"head.site.org", "head", ""}) {
    EXPECT_TRUE(Call(Address(ours, name)).ok()) << name;
  }
  service_.calls = 0;
  for (const char* name : {"hea", "other", "site.org"}) {
    ExpectRefused(Address(ours, name), absl::StatusCode::kPermissionDenied,
                  absl::StrCat("expected node:", name, ", but node:head.site.org answered"));
  }
}

TEST_F(TcpListenerTest, AUserWhoIsNotOursIsRefused) {
  Listen();
  ExpectRefused(Address(Identity(PeerName::User(::geteuid() + 1))), absl::StatusCode::kUnavailable,
                "Socket closed");
}

TEST_F(TcpListenerTest, AUserCannotPassForANode) {
  Listen(Identity(PeerName::User(::geteuid())));
  ExpectRefused(Address(Identity(PeerName::Node("n7")), ""), absl::StatusCode::kPermissionDenied,
                "expected node:NAME");
}

TEST_F(TcpListenerTest, ForeignCertificatesAreRefusedInBothDirections) {
  Listen();
  TlsIdentity foreign = Identity(PeerName::Node("n7"), 2);
  ExpectRefused(Address(foreign), absl::StatusCode::kUnauthenticated, "the same cluster key");
  foreign.authority = AuthorityOf(1).certificate();
  ExpectRefused(Address(foreign), absl::StatusCode::kUnavailable, "Socket closed");
}

TEST_F(TcpListenerTest, ExpiredAndFutureCertificatesAreRefused) {
  Listen();
  for (const int64_t issued : {NowSeconds() - 2 * kDay, NowSeconds() + 2 * kDay}) {
    ExpectRefused(Address(Identity(PeerName::Node("n7"), 1, issued)),
                  absl::StatusCode::kUnavailable, "Socket closed");
  }
}

TEST_F(TcpListenerTest, ACallerWithoutACertificateIsRefused) {
  Listen();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = AuthorityOf(1).certificate();
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", listener_->port()),
                                           grpc::SslCredentials(options));
  const auto plain = grpc::CreateChannel(absl::StrCat("127.0.0.1:", listener_->port()),
                                         grpc::InsecureChannelCredentials());
  for (const std::shared_ptr<grpc::Channel>& caller : {channel, plain}) {
    grpc::ClientContext context;
    v1::JobState state;
    EXPECT_FALSE(v1::JobService::NewStub(caller)->Describe(&context, {}, &state).ok());
  }
  EXPECT_EQ(service_.calls, 0);
}

TEST_F(TcpListenerTest, RefusesAMessageAboveTheLimit) {
  Listen();
  const auto dialled = Dial(Address(Identity(PeerName::Node("n7"))));
  grpc::ClientContext context;
  v1::StopRequest request;
  request.set_by(std::string(kMaxMessageBytes + 1000, 'x'));
  v1::StopReply reply;
  EXPECT_EQ(v1::JobService::NewStub(dialled->channel)->Stop(&context, request, &reply).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(TcpListenerTest, TwoCannotListenAtOneEndpoint) {
  Listen();
  Loop other;
  const absl::Status status = TcpListener::Listen(&other, {"127.0.0.1", listener_->port()},
                                                  Identity(PeerName::Node("head")), {&service_})
                                  .status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("another process listens"));
}

TEST_F(TcpListenerTest, ConnectionsBeyondTheDescriptorsAreClosedAndTheOthersServed) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(OpenDescriptors() + 64 + 40);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  Listen();
  const auto kept = Dial(Address(Identity(PeerName::Node("n7"))));
  grpc::ClientContext first;
  v1::JobState state;
  EXPECT_TRUE(v1::JobService::NewStub(kept->channel)->Describe(&first, {}, &state).ok());
  ::setrlimit(RLIMIT_NOFILE, &before);  // for this side of the connections
  std::vector<Fd> flood;
  for (int i = 0; i < 200; ++i) {
    flood.push_back(Connect());
  }
  // Of the last ones each was closed by the other side.
  char byte;
  EXPECT_LE(::recv(flood.back().get(), &byte, 1, 0), 0);
  grpc::ClientContext again;
  EXPECT_TRUE(v1::JobService::NewStub(kept->channel)->Describe(&again, {}, &state).ok());
}

TEST_F(TcpListenerTest, BytesThatAreNoTlsDoNoHarm) {
  Listen();
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.0\r\n\r\n"), std::string("\x16\x03\x01\xff\xff", 5),
        std::string(100000, '\xff'), std::string()}) {
    Fd fd = Connect();
    ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(Call(Address(Identity(PeerName::Node("n7")))).ok());
}

TEST_F(TcpListenerTest, HoldsAThousandIdleStreams) {
  Listen();
  constexpr int kStreams = 1000;
  constexpr int kPerChannel = 100;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<ClientStream<v1::NodeMessage, v1::NodeOrder>*> streams;
  std::atomic<int> closed{0};
  for (int i = 0; i < kStreams; ++i) {
    if (i % kPerChannel == 0) {
      channels.push_back(Dial(Address(Identity(PeerName::Node(absl::StrCat("n", i)))))->channel);
    }
    auto* stream = new ClientStream<v1::NodeMessage, v1::NodeOrder>(&loop_);
    stream->on_closed = [&closed](const absl::Status&) { ++closed; };
    streams.push_back(stream);
    loop_.Post([stream, channel = channels.back()] {
      v1::JobService::NewStub(channel)->async()->Join(stream->context(), stream);
      stream->Begin();
    });
  }
  const Instant deadline = Now() + seconds(60);
  while (service_.streams < kStreams && Now() < deadline) ::usleep(1000);
  EXPECT_EQ(service_.streams, kStreams);
  EXPECT_TRUE(Call(Address(Identity(PeerName::Node("n7")))).ok());
  for (auto* stream : streams) loop_.Post([stream] { stream->Cancel(); });
  while ((closed < kStreams || service_.streams > 0) && Now() < deadline) ::usleep(1000);
  EXPECT_EQ(closed, kStreams);
}

}  // namespace
}  // namespace trainctl

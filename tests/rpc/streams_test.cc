// Streams whose life is on a loop thread, over a real socket pair of connections.
#include "runtime/rpc/streams.h"

#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/unix_listener.h"

namespace trainctl {
namespace {

using ServerJoin = ServerStream<v1::NodeMessage, v1::NodeOrder>;
using ClientJoin = ClientStream<v1::NodeMessage, v1::NodeOrder>;
using ServerWatch = ServerFeed<v1::JobUpdate>;
using ClientWatch = ClientFeed<v1::JobUpdate>;

class StreamService final : public v1::JobService::CallbackService {
 public:
  explicit StreamService(Loop* loop) : loop_(loop) {}
  // On the loop's thread.
  std::function<void(ServerJoin*)> on_join;
  std::function<void(ServerWatch*)> on_watch;

 private:
  grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeOrder>* Join(
      grpc::CallbackServerContext*) override {
    auto* stream = new ServerJoin(loop_);
    loop_->Post([this, stream] { on_join(stream); });
    return stream;
  }
  grpc::ServerWriteReactor<v1::JobUpdate>* Watch(grpc::CallbackServerContext*,
                                                 const v1::WatchRequest*) override {
    auto* feed = new ServerWatch(loop_);
    loop_->Post([this, feed] { on_watch(feed); });
    return feed;
  }
  Loop* loop_;
};

// Both ends live on one loop, which runs on the test's own thread until Done or a deadline.
class StreamsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = "/tmp/trainctl-rpc-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    auto listener = UnixListener::Listen(&loop_, Socket(), {&service_});
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    loop_.After(seconds(20), [this] {
      ADD_FAILURE() << "not done in time";
      loop_.Quit(1);
    });
  }
  void TearDown() override {
    listener_.reset();
    ::rmdir(folder_.c_str());
  }
  std::string Socket() const { return folder_ + "/s"; }
  // `parts` ends of streams are to be closed.
  void Closed() {
    if (--open_ends_ == 0) loop_.Quit(0);
  }
  template <typename Stream>
  void CountClosed(Stream* stream) {
    ++open_ends_;
    stream->on_closed = [this](auto&&...) { Closed(); };
  }
  void CountClosed(ServerJoin* stream) {
    ++open_ends_;
    stream->on_closed = [this] { Closed(); };
  }
  void CountClosed(ServerWatch* feed) {
    ++open_ends_;
    feed->on_closed = [this] { Closed(); };
  }
  ClientJoin* DialJoin() {
    dialled_ = *DialUnix(Socket());
    auto* stream = new ClientJoin(&loop_);
    v1::JobService::NewStub(dialled_.channel)->async()->Join(stream->context(), stream);
    return stream;
  }
  ClientWatch* DialWatch() {
    dialled_ = *DialUnix(Socket());
    auto* feed = new ClientWatch(&loop_);
    v1::JobService::NewStub(dialled_.channel)->async()->Watch(feed->context(), &request_, feed);
    return feed;
  }

  std::string folder_;
  Loop loop_;
  StreamService service_{&loop_};
  std::unique_ptr<UnixListener> listener_;
  DialledChannel dialled_;
  v1::WatchRequest request_;
  int open_ends_ = 0;
};

TEST_F(StreamsTest, CarryMessagesBothWaysInOrder) {
  std::vector<uint64_t> orders;
  service_.on_join = [this](ServerJoin* server) {
    CountClosed(server);
    server->on_message = [server](const v1::NodeMessage& message) {
      v1::NodeOrder order;
      order.mutable_lease()->set_request_id(message.lease().request_id() * 10);
      server->Send(std::move(order));
      if (message.lease().request_id() == 100) server->Finish(absl::OkStatus());
    };
    server->Begin();
  };
  ClientJoin* client = DialJoin();
  CountClosed(client);
  client->on_message = [&orders](const v1::NodeOrder& order) {
    orders.push_back(order.lease().request_id());
  };
  client->Begin();
  for (uint64_t i = 1; i <= 100; ++i) {
    v1::NodeMessage message;
    message.mutable_lease()->set_request_id(i);
    client->Send(std::move(message));
  }
  EXPECT_EQ(loop_.Run(), 0);
  ASSERT_EQ(orders.size(), 100u);
  for (uint64_t i = 1; i <= 100; ++i) EXPECT_EQ(orders[i - 1], i * 10);
}

TEST_F(StreamsTest, AServerSeesAClientThatGoesAway) {
  bool cancelled = false;
  ClientJoin* client = nullptr;
  service_.on_join = [&](ServerJoin* server) {
    CountClosed(server);
    server->on_cancel = [&cancelled] { cancelled = true; };
    server->on_message = [&client](const v1::NodeMessage&) { client->Cancel(); };
    server->Begin();
  };
  client = DialJoin();
  CountClosed(client);
  client->Begin();
  v1::NodeMessage message;
  message.mutable_lease();
  client->Send(std::move(message));
  EXPECT_EQ(loop_.Run(), 0);
  EXPECT_TRUE(cancelled);
}

TEST_F(StreamsTest, FinishDeliversWhatWasQueuedAndThenTheStatus) {
  service_.on_watch = [this](ServerWatch* server) {
    CountClosed(server);
    for (int i = 0; i < 50; ++i) {
      v1::JobUpdate update;
      update.mutable_announcement()->set_text(std::to_string(i));
      server->Send(std::move(update));
    }
    server->Finish(absl::AbortedError("enough"));
    server->Send({});  // dropped
  };
  int received = 0;
  absl::Status end;
  ClientWatch* client = DialWatch();
  ++open_ends_;
  client->on_message = [&received](const v1::JobUpdate& update) {
    EXPECT_EQ(update.announcement().text(), std::to_string(received));
    ++received;
  };
  client->on_closed = [&](const absl::Status& status) {
    end = status;
    Closed();
  };
  client->Begin();
  EXPECT_EQ(loop_.Run(), 0);
  EXPECT_EQ(received, 50);
  EXPECT_EQ(end, absl::AbortedError("enough"));
}

TEST_F(StreamsTest, AQueueThatNobodyReadsCanBeSeenAndEnded) {
  ClientWatch* client = nullptr;
  service_.on_watch = [&](ServerWatch* server) {
    CountClosed(server);
    v1::JobUpdate update;
    update.mutable_output()->add_outputs()->set_data(std::string(1 << 20, 'x'));
    for (int i = 0; i < 20; ++i) server->Send(update);
    EXPECT_GT(server->queued_bytes(), size_t{10} << 20);
    client->Cancel();
  };
  client = DialWatch();
  CountClosed(client);
  client->Begin();
  EXPECT_EQ(loop_.Run(), 0);
}

}  // namespace
}  // namespace trainctl

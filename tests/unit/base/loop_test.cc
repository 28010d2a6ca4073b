#include "runtime/base/loop.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/base/clock.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    a = Fd(fds[0]);
    b = Fd(fds[1]);
  }
  Fd a;
  Fd b;
};

TEST(Loop, RunsTimersInTheirOrderAndSkipsCancelledOnes) {
  Loop loop;
  std::vector<int> order;
  const Instant now = Now();
  loop.At(now + milliseconds(4), [&] { loop.Quit(7); });
  loop.At(now + milliseconds(2), [&] { order.push_back(2); });
  loop.At(now + milliseconds(1), [&] { order.push_back(1); });
  const Loop::TimerId cancelled = loop.At(now + milliseconds(1), [&] { order.push_back(0); });
  loop.Cancel(cancelled);
  loop.Cancel(cancelled);
  EXPECT_EQ(loop.Run(), 7);
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST(Loop, ATimerMayArmAndCancelOthers) {
  Loop loop;
  bool wrong = false;
  const Loop::TimerId later = loop.After(milliseconds(1), [&] { wrong = true; });
  loop.At(Instant{0}, [&] {
    loop.Cancel(later);
    loop.After(milliseconds(2), [&] { loop.Quit(0); });
  });
  loop.Run();
  EXPECT_FALSE(wrong);
}

TEST(Loop, CallsBackWhileADescriptorIsReadable) {
  Loop loop;
  Pair pair;
  std::string got;
  loop.Watch(pair.a.get(), EPOLLIN, [&](uint32_t events) {
    EXPECT_EQ(events & EPOLLIN, static_cast<uint32_t>(EPOLLIN));
    char byte;
    ASSERT_EQ(::read(pair.a.get(), &byte, 1), 1);
    got += byte;
    if (got.size() == 3) loop.Quit(0);
  });
  ASSERT_TRUE(WriteAll(pair.b.get(), "abc", "pair").ok());
  loop.Run();
  EXPECT_EQ(got, "abc");
}

TEST(Loop, ACallbackMayUnwatchItselfAndOthersThatAreReadyToo) {
  Loop loop;
  Pair one;
  Pair two;
  int calls = 0;
  const auto callback = [&](uint32_t) {
    ++calls;
    loop.Unwatch(one.a.get());
    loop.Unwatch(two.a.get());
    loop.After(milliseconds(1), [&] { loop.Quit(0); });
  };
  loop.Watch(one.a.get(), EPOLLIN, callback);
  loop.Watch(two.a.get(), EPOLLIN, callback);
  ASSERT_TRUE(WriteAll(one.b.get(), "x", "pair").ok());
  ASSERT_TRUE(WriteAll(two.b.get(), "x", "pair").ok());
  loop.Run();
  EXPECT_EQ(calls, 1);
}

TEST(Loop, ModifyChangesWhatIsWaitedFor) {
  Loop loop;
  Pair pair;
  loop.Watch(pair.a.get(), 0, [&](uint32_t events) {
    EXPECT_NE(events & EPOLLOUT, 0u);
    loop.Quit(0);
  });
  loop.Modify(pair.a.get(), EPOLLOUT);
  loop.Run();
}

TEST(Loop, TasksOfOtherThreadsRunHereInTheirOrder) {
  Loop loop;
  std::vector<int> order;
  const std::thread::id here = std::this_thread::get_id();
  std::thread other([&] {
    for (int i = 0; i < 3; ++i) {
      loop.Post([&, i] {
        EXPECT_EQ(std::this_thread::get_id(), here);
        order.push_back(i);
      });
    }
    loop.Quit(0);
  });
  loop.Run();
  other.join();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST(Loop, DeliversSignalsWithTheirSender) {
  Loop loop;
  std::vector<int> senders;
  loop.OnSignal(SIGUSR1, [&](int sender) { senders.push_back(sender); });
  loop.OnSignal(SIGUSR2, [&](int) { loop.Quit(0); });
  ::kill(::getpid(), SIGUSR1);
  ::kill(::getpid(), SIGUSR2);
  loop.Run();
  EXPECT_THAT(senders, ElementsAre(::getpid()));
}

}  // namespace
}  // namespace trainctl

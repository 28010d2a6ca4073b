// What passes through the shim: output, exchanges, records, and daemons that come and go.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "runtime/base/file.h"
#include "tests/process/shim_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRAINCTL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TRAINCTL_SANITIZED 1
#endif
#endif

namespace trainctl::testing {
namespace {

using frame::EpochGone;
using frame::EpochStarted;
using frame::ShimState;
using frame::WorkerExited;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

// "VmHWM:    1234 kB" of /proc/PID/status, or a field of smaps_rollup.
int64_t MemoryKb(pid_t pid, const std::string& file, const std::string& field) {
  const std::string text = ReadFile(absl::StrCat("/proc/", pid, "/", file)).value_or("");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, field + ":")) return std::atoll(line.data() + field.size() + 1);
  }
  return -1;
}

class ShimDaemon : public Shim {};

TEST_F(ShimDaemon, AFloodNeedsNoMemoryEvenIfNobodyReadsIt) {
  constexpr uint64_t kBytes = 200'000'000;
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.keep_output = false;
  daemon.AskForOutput(0, 1);
  daemon.Send(Scripts(0, {absl::StrCat("head -c ", kBytes, " /dev/zero")}));
  // The daemon reads nothing until the worker has written everything.
  WaitUntil(
      [&] {
        struct stat info;
        return ::stat(LogPath(0, 0, "stdout.log").c_str(), &info) == 0 &&
               static_cast<uint64_t>(info.st_size) == kBytes;
      },
      "the whole log");
  const int64_t peak_kb = MemoryKb(FindSupervisor(), "status", "VmHWM");
  EXPECT_GT(peak_kb, 0);
#ifndef TRAINCTL_SANITIZED
  EXPECT_LT(peak_kb, 8 * 1024);
#endif
  EXPECT_EQ(daemon.Await<WorkerExited>().exit.code, 0);
  daemon.Await<EpochGone>();
  EXPECT_EQ(daemon.output_bytes, kBytes);
}

TEST_F(ShimDaemon, IdleItIsSmall) {
  StartShim(8);
  Peer daemon = ConnectDaemon();
  daemon.Await<ShimState>();
  const int64_t keeper_kb = MemoryKb(keeper_, "smaps_rollup", "Rss");
  const int64_t supervisor_kb = MemoryKb(FindSupervisor(), "smaps_rollup", "Rss");
  std::printf("keeper %lld kB, supervisor %lld kB\n", static_cast<long long>(keeper_kb),
              static_cast<long long>(supervisor_kb));
  EXPECT_GT(keeper_kb, 0);
#ifndef TRAINCTL_SANITIZED
  EXPECT_LE(keeper_kb + supervisor_kb, 5 * 1024);
#endif
}

TEST_F(ShimDaemon, AWorkerMayCloseItsOutput) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 1);
  ASSERT_EQ(::mkfifo((folder_ + "/go").c_str(), 0600), 0);
  daemon.Send(Scripts(0, {"echo before; exec >&- 2>&-; read line < go; exit 4"}));
  // The logs' ends are told while the worker lives, in either order.
  std::set<int> ended;
  daemon.Await<frame::Output>([&ended](const frame::Output& o) {
    if (o.bytes.empty()) ended.insert(o.stream);
    return ended.size() == 2;
  });
  std::ofstream(folder_ + "/go") << "now\n";
  const auto exited = daemon.Await<WorkerExited>();
  EXPECT_EQ(exited.exit.kind, frame::Exit::Kind::kExited);
  daemon.Await<EpochGone>();
  EXPECT_EQ(daemon.OutputOf(0, 1), "before\n");
}

TEST_F(ShimDaemon, OutputIsPassedOnByteForByte) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 1);
  daemon.Send(Scripts(0, {"printf 'a\\000\\377\\n\\r\\033[1m'; printf 'err\\200' >&2"}));
  daemon.Await<EpochGone>();
  EXPECT_EQ(daemon.OutputOf(0, 1), std::string("a\0\xff\n\r\033[1m", 9));
  EXPECT_EQ(daemon.OutputOf(0, 2), "err\x80");
  EXPECT_EQ(*ReadFile(LogPath(0, 0, "stderr.log")), "err\x80");
}

TEST_F(ShimDaemon, AFolderThatCannotBeWrittenCostsTheOutputOnly) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  frame::StartEpoch start = Scripts(0, {"echo lost; echo tail >&2; exit 9"});
  start.log_folder = "/proc/no/logs";
  daemon.Send(start);
  EXPECT_THAT(daemon.Await<frame::Note>().text, HasSubstr("its output is lost: "));
  const auto exited = daemon.Await<WorkerExited>();
  EXPECT_EQ(exited.exit.code, 9);
  EXPECT_EQ(exited.output_tail, "tail\n");
  daemon.Await<EpochGone>();
}

TEST_F(ShimDaemon, ANewDaemonContinuesWithNothingLostOrDoubled) {
  StartShim(2);
  Peer first = ConnectDaemon(1);
  first.AskForOutput(0, 1);
  first.Send(Scripts(0, {"i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; done; "
                         "read line < go; exit 0",
                         "echo last words >&2; exit 6"}));
  ASSERT_EQ(::mkfifo((folder_ + "/go").c_str(), 0600), 0);
  while (first.OutputOf(0, 1).size() < 1000) ASSERT_TRUE(first.Next().has_value());
  const std::string before = first.OutputOf(0, 1);
  first.Close();

  // Meanwhile workers speak to a shim without a daemon.
  Peer worker = ConnectWorker(0, 0);
  worker.Send(frame::Exchange{0, 0, "key", "value", 0});
  worker.Send(frame::ShardPrepared{0, 10, {0, "f", 1, "d"}});
  worker.Send(frame::Metric{0, 0, "loss", 0.5});
  worker.Send(frame::Note{0, 0, "a note"});
  worker.Send(frame::CheckpointRejected{0, 5, "bad"});

  Peer second;
  ShimState state;
  // The worker's frames race with the new daemon's Hello: ask until they are in the state.
  for (int64_t incarnation = 2;; ++incarnation) {
    second = ConnectDaemon(incarnation);
    second.AskForOutput(0, 1, before.size());
    state = second.Await<ShimState>();
    if (!state.exchanges.empty() && !state.slots.at(1).running) break;
  }
  EXPECT_EQ(state.exchanges.at(0).value, "value");
  EXPECT_EQ(state.epoch, 0);
  EXPECT_FALSE(state.gone);
  ASSERT_THAT(state.slots, SizeIs(2));
  EXPECT_EQ(state.slots[1].rank, 1);
  EXPECT_EQ(state.slots[1].exit.code, 6);
  EXPECT_EQ(state.slots[1].output_tail, "last words\n");
  std::ofstream(folder_ + "/go") << "now\n";
  EXPECT_EQ(second.Await<WorkerExited>().rank, 0);
  second.Await<EpochGone>();
  EXPECT_EQ(before + second.OutputOf(0, 1), *ReadFile(LogPath(0, 0, "stdout.log")));
  EXPECT_THAT(before + second.OutputOf(0, 1), HasSubstr("line 20000\n"));
}

TEST_F(ShimDaemon, RecordsOfWorkersReachTheNextDaemon) {
  StartShim(1);
  Peer first = ConnectDaemon(1);
  first.Send(Scripts(0, {kForever}));
  first.Await<EpochStarted>();
  Peer worker = ConnectWorker(0, 0);
  worker.Send(frame::ShardPrepared{0, 10, {0, "f", 1, "d"}});
  worker.Send(frame::Metric{0, 0, "loss", 0.5});
  first.Await<frame::Metric>();
  first.Close();  // it may have died with all of it unread
  Peer second = ConnectDaemon(2);
  EXPECT_EQ(second.Await<frame::ShardPrepared>().step, 10);
  EXPECT_EQ(second.Await<frame::Metric>().value, 0.5);
}

TEST_F(ShimDaemon, AnExchangeIsAnsweredToEveryRankThatAskedAndCommitsGoToRankZero) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {kForever, kForever}));
  daemon.Await<EpochStarted>();
  Peer zero = ConnectWorker(0, 0);
  Peer one = ConnectWorker(1, 0);
  zero.Send(frame::Exchange{0, 0, "id", "from 0", 0});
  one.Send(frame::Exchange{0, 1, "id", "from 1", 0});
  EXPECT_EQ(daemon.Await<frame::Exchange>().name, "id");
  daemon.Await<frame::Exchange>();
  daemon.Send(frame::ExchangeDone{0, "id", {"from 0", "from 1"}, ""});
  EXPECT_THAT(zero.Await<frame::ExchangeDone>().values, SizeIs(2));
  EXPECT_THAT(one.Await<frame::ExchangeDone>().values, SizeIs(2));
  zero.Send(frame::ShardPrepared{0, 10, {0, "f", 1, "d"}});
  daemon.Await<frame::ShardPrepared>();
  daemon.Send(frame::CommitGranted{0, 1, 10, {}, {}});
  EXPECT_EQ(zero.Await<frame::CommitGranted>().step, 10);
  zero.Send(frame::CheckpointPublished{0, 10});
  EXPECT_EQ(daemon.Await<frame::CheckpointPublished>().step, 10);
}

TEST_F(ShimDaemon, ANewerDaemonTakesOverAndAnOlderOneIsRefused) {
  StartShim(1);
  Peer first = ConnectDaemon(5);
  first.Await<ShimState>();
  Peer second = ConnectDaemon(6);
  second.Await<ShimState>();
  EXPECT_TRUE(first.AwaitEnd());
  Peer old = ConnectDaemon(4);
  EXPECT_TRUE(old.AwaitEnd());
  second.Send(Scripts(0, {"exit 0"}));
  second.Await<EpochGone>();
}

TEST_F(ShimDaemon, WhoeverBreaksTheProtocolIsCutOffAndTheRestGoesOn) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(3, {kForever, kForever}));
  daemon.Await<EpochStarted>();
  Peer garbage = ConnectWorker(0, 3);
  garbage.SendBytes(std::string(100, '\xff'));
  EXPECT_TRUE(garbage.AwaitEnd());
  Peer silent = ConnectWorker(1, 3);
  silent.Send(frame::Release{});  // not a worker's to say
  EXPECT_TRUE(silent.AwaitEnd());
  Peer stale = ConnectWorker(0, 2);
  EXPECT_TRUE(stale.AwaitEnd());
  Peer stranger = ConnectWorker(7, 3);
  EXPECT_TRUE(stranger.AwaitEnd());
  Peer liar = ConnectWorker(1, 3);
  liar.Send(frame::Metric{3, 0, "loss", 1});  // about another rank
  EXPECT_TRUE(liar.AwaitEnd());
  for (const uint32_t version : {frame::kFrameVersion + 1, frame::kOldestFrameVersion - 1}) {
    Peer other(socket_, frame::Hello{version, 1, -1});
    EXPECT_TRUE(other.AwaitEnd());
  }
  daemon.Send(frame::StopEpoch{1, 3, 0});
  daemon.Await<EpochGone>();
}

TEST_F(ShimDaemon, OnlyWhatIsAskedForIsForwarded) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  daemon.Send(frame::OutputFrom{0, 1, 1, 2, 6});
  daemon.Send(Scripts(0, {"echo unasked", "echo 0123456789"}));
  daemon.Await<EpochGone>();
  EXPECT_EQ(daemon.OutputOf(0, 1), "");
  EXPECT_EQ(daemon.OutputOf(1, 1), "2345");
  daemon.Send(Scripts(1, {"exit 0"}));
  daemon.Await<EpochGone>();
  daemon.Send(frame::OutputFrom{0, 0, 1, 0, kAll});  // of the epoch before
  EXPECT_EQ(daemon.Await<frame::Output>().bytes, "unasked\n");
}

// The port that is announced for the next epoch: torch's own store can listen on it while we hold
// it, and nobody who asks for any port is given it.
TEST_F(ShimDaemon, HoldsAPortThatTorchsStoreCanStillBind) {
  if (::system("/usr/bin/python3 -c 'import torch.distributed' 2>/dev/null") != 0) {
    GTEST_SKIP() << "skipped, because /usr/bin/python3 has no torch";
  }
  StartShim(2, "120s");  // importing torch can take longer than the usual lease
  Peer daemon = ConnectDaemon();
  daemon.deadline = seconds(90);
  daemon.AskForOutput(0, 2);
  const uint16_t port = daemon.Await<ShimState>().reserved_port;
  ASSERT_NE(port, 0);
  const std::string script = absl::StrCat(
      "exec /usr/bin/python3 -c \"\n"
      "import datetime, os, socket, sys\n"
      "from torch.distributed import TCPStore\n"
      "rank = int(os.environ['RANK'])\n"
      "taken = []\n"
      "for _ in range(200):\n"
      "  s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
      "  s.bind(('', 0)); taken.append(s)\n"
      "assert ",
      port,
      " not in [s.getsockname()[1] for s in taken]\n"
      "store = TCPStore('127.0.0.1', ",
      port,
      ", 2, rank == 0, timeout=datetime.timedelta(seconds=60))\n"
      "store.set(str(rank), 'hello ' + str(rank))\n"
      "print(store.get(str(1 - rank)).decode(), flush=True)\n"
      "store.add('done', 1)\n"
      "while rank == 0 and store.add('done', 0) < 2: pass\n\"");
  frame::StartEpoch start = Scripts(0, {script, script});
  start.workers[0].env = {"RANK=0"};
  start.workers[1].env = {"RANK=1"};
  daemon.Send(start);
  EXPECT_NE(daemon.Await<EpochStarted>().reserved_port, port);
  for (int i = 0; i < 2; ++i) {
    const auto exited = daemon.Await<WorkerExited>();
    EXPECT_EQ(exited.exit.code, 0) << exited.output_tail;
  }
  daemon.Await<EpochGone>();
  EXPECT_EQ(daemon.OutputOf(0, 1), "hello 1\n");
  EXPECT_EQ(daemon.OutputOf(1, 1), "hello 0\n");
}

}  // namespace
}  // namespace trainctl::testing

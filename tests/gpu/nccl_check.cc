// nccl_check: one worker for each GPU proves the NCCL communicator on real ones. Started by
// nccl_test.py under `trainctl launch`, or alone with one GPU. Prints what it finds; exit status 0:
// all as it must be.
//
//   nccl_check                       its place is in the environment
//   nccl_check FOLDER RANK RANKS     they meet in FOLDER; several may share a GPU if each is given
//                                    another NCCL_HOSTID, which makes NCCL take them for nodes
//   nccl_check … killed              the last rank is killed in the middle of an all-reduce
#include <cuda_runtime_api.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/device/device.h"
#include "runtime/device/memory.h"
#include "runtime/nccl/nccl_communicator.h"
#include "runtime/preflight/folder_session.h"

namespace trainctl {
namespace {

int failures = 0;

void Expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}
void ExpectOk(const absl::Status& status, const std::string& what) {
  Expect(status.ok(), absl::StrCat(what, ": ", status.ToString()));
}

// Small whole numbers, which every type holds and whose sums are exact.
float ValueOf(int rank, size_t i) { return static_cast<float>((i + 3 * rank) % 8); }

uint16_t Half(float value, bool brain) {
  if (brain) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
  }
  if (value == 0) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(value, &exponent);  // in [0.5, 1)
  return static_cast<uint16_t>(((exponent + 14) << 10) |
                               static_cast<int>((mantissa * 2 - 1) * 1024));
}

std::vector<char> Encoded(ElementType type, size_t count, const std::function<float(size_t)>& at) {
  std::vector<char> bytes(count * BytesOf(type));
  for (size_t i = 0; i < count; ++i) {
    if (type == ElementType::kFloat32) {
      const float value = at(i);
      std::memcpy(&bytes[i * 4], &value, 4);
    } else if (type == ElementType::kFloat64) {
      const double value = at(i);
      std::memcpy(&bytes[i * 8], &value, 8);
    } else {
      const uint16_t value = Half(at(i), type == ElementType::kBFloat16);
      std::memcpy(&bytes[i * 2], &value, 2);
    }
  }
  return bytes;
}

class Check {
 public:
  Check(Session& session, NcclCommunicator& communicator)
      : communicator_(communicator),
        ranks_(session.identity().world_size),
        rank_(session.identity().rank) {}

  void Sums() {
    Stream stream = Stream::Create().value();
    for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat64,
                                   ElementType::kFloat16, ElementType::kBFloat16}) {
      for (const size_t count : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
        DeviceMemory memory =
            Given(Encoded(type, count, [&](size_t i) { return ValueOf(rank_, i); }));
        ExpectOk(communicator_.EnqueueAllReduce(memory.data(), count, type, stream.get(), 0),
                 "enqueue");
        ExpectOk(communicator_.Await(stream.get()), "await");
        Expect(Taken(memory) == Encoded(type, count, [&](size_t i) { return Sum(i); }),
               absl::StrCat("all-reduce of ", count, " of type ", static_cast<int>(type)));
      }
    }
  }

  void OtherCollectives() {
    constexpr size_t kCount = 4096;
    const auto all = [&](size_t i) { return ValueOf(rank_, i); };
    const size_t ranks = static_cast<size_t>(ranks_);
    DeviceMemory in = Given(Encoded(ElementType::kFloat32, kCount * ranks, all));
    DeviceMemory out = DeviceMemory::Allocate("out", kCount * 4).value();
    ExpectOk(communicator_.ReduceScatterSum(in.As<float>(), out.As<float>(), kCount),
             "reduce-scatter");
    Expect(Taken(out) == Encoded(ElementType::kFloat32, kCount,
                                 [&](size_t i) { return Sum(i + kCount * rank_); }),
           "sums of the reduce-scatter");
    DeviceMemory own = Given(Encoded(ElementType::kFloat32, kCount, all));
    DeviceMemory every = DeviceMemory::Allocate("every", kCount * 4 * ranks).value();
    ExpectOk(communicator_.AllGather(own.data(), every.data(), kCount * 4), "all-gather");
    Expect(Taken(every) ==
               Encoded(ElementType::kFloat32, kCount * ranks,
                       [&](size_t i) { return ValueOf(static_cast<int>(i / kCount), i % kCount); }),
           "data of the all-gather");
    ExpectOk(communicator_.Broadcast(own.data(), kCount * 4, ranks_ - 1), "broadcast");
    Expect(Taken(own) == Encoded(ElementType::kFloat32, kCount,
                                 [&](size_t i) { return ValueOf(ranks_ - 1, i); }),
           "data of the broadcast");
    ExpectOk(communicator_.Barrier(), "barrier");
  }

  void SameBits() {
    constexpr size_t kCount = 1 << 20;
    const auto values = [&](size_t i) {
      return std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(rank_)) * 1e3f;
    };
    std::vector<char> first;
    for (int i = 0; i < 5; ++i) {
      DeviceMemory memory = Given(Encoded(ElementType::kFloat32, kCount, values));
      ExpectOk(communicator_.AllReduceSum(memory.As<float>(), kCount, 0), "all-reduce");
      std::vector<char> bits = Taken(memory);
      if (i == 0) first = bits;
      Expect(bits == first, "the same bits in every run");
    }
  }

  // What a call costs the thread that makes it, whatever the GPU does meanwhile.
  void CostOfCalls(const char* mode) {
    constexpr int kCalls = 50;
    Stream stream = Stream::Create().value();
    DeviceMemory memory = DeviceMemory::Allocate("a test's tensor", 1024).value();
    for (const int calls : {5, kCalls}) {
      const Instant begin = Now();
      for (int i = 0; i < calls; ++i) {
        ExpectOk(
            communicator_.EnqueueAllReduce(memory.data(), 256, ElementType::kFloat32, stream.get()),
            "enqueue");
      }
      const double seconds = ToSeconds(Now() - begin) / calls;
      ExpectOk(communicator_.Await(stream.get()), "await");
      if (calls == kCalls) {
        std::printf("figure: enqueue an all-reduce of %d ranks, %s: %.1f us\n", ranks_, mode,
                    seconds * 1e6);
      }
    }
  }

  void Registered() {
    auto memory = communicator_.Allocate("a registered bucket", size_t{4} << 20);
    ExpectOk(memory.status(), "allocate registered memory");
    if (!memory.ok()) return;
    std::printf("registered memory: %s\n", (*memory)->registered() ? "yes" : "no");
    ExpectOk(communicator_.AllReduceSum(static_cast<float*>((*memory)->data()), 1 << 20, 0),
             "all-reduce of registered memory");
  }

  void Captured(const char* mode) {
    Stream stream = Stream::Create().value();
    constexpr size_t kCount = 1 << 16;
    const size_t ranks = static_cast<size_t>(ranks_);
    DeviceMemory in = Given(Encoded(ElementType::kFloat32, kCount * ranks,
                                    [&](size_t i) { return ValueOf(rank_, i); }));
    DeviceMemory out = DeviceMemory::Allocate("out", kCount * 4).value();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaError_t error = ::cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal);
    const absl::Status enqueued = communicator_.EnqueueReduceScatter(
        in.data(), out.data(), kCount, ElementType::kFloat32, stream.get());
    const cudaError_t ended = ::cudaStreamEndCapture(stream.get(), &graph);
    if (error == cudaSuccess) error = ended;
    if (error == cudaSuccess) error = ::cudaGraphInstantiate(&executable, graph, 0);
    for (int i = 0; i < 2 && error == cudaSuccess; ++i) {
      error = ::cudaGraphLaunch(executable, stream.get());
    }
    const absl::Status awaited = communicator_.Await(stream.get());
    const bool right = error == cudaSuccess && enqueued.ok() && awaited.ok() &&
                       Taken(out) == Encoded(ElementType::kFloat32, kCount,
                                             [&](size_t i) { return Sum(i + kCount * rank_); });
    std::printf("figure: capture in a CUDA graph, %s: %s %s %s\n", mode,
                right ? "works" : "does not work", ::cudaGetErrorName(error),
                enqueued.ok() ? "" : enqueued.ToString().c_str());
    if (executable != nullptr) ::cudaGraphExecDestroy(executable);
    if (graph != nullptr) ::cudaGraphDestroy(graph);
    ::cudaGetLastError();
  }

 private:
  float Sum(size_t i) const {
    float sum = 0;
    for (int rank = 0; rank < ranks_; ++rank) sum += ValueOf(rank, i);
    return sum;
  }
  static DeviceMemory Given(const std::vector<char>& bytes) {
    DeviceMemory memory = DeviceMemory::Allocate("a test's tensor", bytes.size()).value();
    ExpectOk(Copy("a tensor", memory.data(), bytes.data(), bytes.size(), nullptr), "copy");
    ExpectOk(SynchronizeDevice(), "copy");
    return memory;
  }
  static std::vector<char> Taken(const DeviceMemory& memory) {
    std::vector<char> bytes(memory.bytes());
    ExpectOk(Copy("a tensor", bytes.data(), memory.data(), bytes.size(), nullptr), "copy back");
    ExpectOk(SynchronizeDevice(), "copy back");
    return bytes;
  }

  NcclCommunicator& communicator_;
  const int ranks_;
  const int rank_;
};

// A stream that does not go on until it is released: what is enqueued behind is in the middle.
class Hold {
 public:
  explicit Hold(CudaStream stream) {
    ::cudaLaunchHostFunc(
        stream, [](void* held) { static_cast<std::atomic<bool>*>(held)->wait(true); }, &held_);
  }
  void Release() {
    held_ = false;
    held_.notify_all();
  }

 private:
  std::atomic<bool> held_{true};
};

void AbortInTheMiddle(Session& session) {
  NcclOptions options;
  options.name = "nccl to be aborted";
  auto communicator = ConnectNccl(session, options);
  ExpectOk(communicator.status(), "connect for the abort");
  if (!communicator.ok()) return;
  Stream stream = Stream::Create().value();
  DeviceMemory memory = DeviceMemory::Allocate("a test's tensor", 4 << 20).value();
  Hold hold(stream.get());
  ExpectOk((*communicator)
               ->EnqueueAllReduce(memory.data(), 1 << 20, ElementType::kFloat32, stream.get()),
           "enqueue for the abort");
  Instant aborted;
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(50));  // most of the waits are then asleep
    aborted = Now();
    hold.Release();
    (*communicator)->Abort("a test says so");
  });
  const absl::Status status = (*communicator)->Await(stream.get());
  const Instant woken = Now();
  other.join();
  // With one rank the GPU may be done before.
  Expect(status.ok() || absl::IsAborted(status), absl::StrCat("aborted: ", status.ToString()));
  std::printf("figure: abort to the end of the wait: %.1f ms (%s)\n",
              ToSeconds(woken - aborted) * 1e3, status.ToString().c_str());
  Expect(absl::IsAborted((*communicator)->Barrier()), "after an abort nothing works");
  const bool again = (*communicator)->recovers_in_process();
  communicator->reset();
  options.name = "nccl again";
  const Instant begin = Now();
  auto next = ConnectNccl(session, options);
  Expect(next.ok() == again, absl::StrCat("connect again: ", next.status().ToString()));
  if (next.ok()) {
    ExpectOk((*next)->Barrier(), "barrier of the next communicator");
    std::printf("figure: connect again in the same process: %.0f ms\n",
                ToSeconds(Now() - begin) * 1e3);
  }
}

void Memory() {
  const absl::Status status =
      DeviceMemory::Allocate("transformer.h.11.mlp", size_t{1} << 50).status();
  Expect(absl::IsResourceExhausted(status) &&
             absl::StrContains(status.message(), "transformer.h.11.mlp"),
         status.ToString());
  std::printf("out of memory says: %s\n", std::string(status.message()).c_str());
  ExpectOk(DeviceMemory::Allocate("the next", 4096).status(), "allocate after that");
  Event early = Event::Create(Event::Kind::kTime).value();
  Event late = Event::Create(Event::Kind::kTime).value();
  Stream stream = Stream::Create(Stream::Priority::kHigh).value();
  DeviceMemory memory = DeviceMemory::Allocate("some", size_t{256} << 20).value();
  ExpectOk(early.Record(stream.get()), "record");
  ExpectOk(Fill("some", memory.data(), 0x5a, memory.bytes(), stream.get()), "fill");
  ExpectOk(late.Record(stream.get()), "record");
  ExpectOk(stream.WaitUntil(Now() + seconds(10), "a test"), "wait");
  const auto milliseconds_taken = late.MillisecondsSince(early);
  Expect(milliseconds_taken.ok() && *milliseconds_taken > 0, "time between events");
  Expect(!UseDevice(4711).ok(), "there is no such GPU");
}

// The last rank dies in an all-reduce; the others must hear of it, by NCCL itself or by Abort.
void LoseARank(Session& session) {
  NcclOptions options;
  options.name = "nccl that loses a rank";
  options.collective_timeout = seconds(20);
  auto communicator = ConnectNccl(session, options);
  ExpectOk(communicator.status(), "connect for the kill");
  if (!communicator.ok()) return;
  DeviceMemory memory = DeviceMemory::Allocate("a test's tensor", 4 << 20).value();
  ExpectOk((*communicator)->AllReduceSum(memory.As<float>(), 1 << 20, 0), "all-reduce before");
  if (session.identity().rank == session.identity().world_size - 1) {
    std::fflush(stdout);
    ::kill(::getpid(), SIGKILL);
  }
  Instant aborted;
  std::thread watcher([&] {
    std::this_thread::sleep_for(seconds(2));  // as long as a verdict may take
    aborted = Now();
    (*communicator)->Abort("a test says that the rank is gone");
  });
  const Instant begin = Now();
  const absl::Status status = (*communicator)->AllReduceSum(memory.As<float>(), 1 << 20, 0);
  const Instant end = Now();
  watcher.join();
  Expect(!status.ok(), "an all-reduce without a rank");
  std::printf("figure: rank lost: the others end after %.2f s, %s: %s\n", ToSeconds(end - begin),
              end < aborted ? "before anybody aborts" : "by the abort", status.ToString().c_str());
}

absl::StatusOr<std::unique_ptr<Session>> MakeSession(const std::vector<std::string>& words) {
  if (words.size() < 3) return Session::FromEnvironment();
  return MakeFolderSession(words[0], std::stoi(words[1]), std::stoi(words[2]));
}

int Main(const std::vector<std::string>& words) {
  auto session = MakeSession(words);
  if (!session.ok()) {
    std::printf("FAILED: %s\n", session.status().ToString().c_str());
    return 1;
  }
  if (!words.empty() && words.back() == "killed") {
    LoseARank(**session);
    std::printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
  }
  const int local = std::min((*session)->identity().local_rank, CountDevices().value() - 1);
  const DeviceProperties gpu = PropertiesOf(local).value();
  std::printf("GPU %d: %s, %s, %s, sm %d, %d multiprocessors, %.1f GiB\n", local, gpu.name.c_str(),
              gpu.pci.c_str(), gpu.uuid.c_str(), gpu.sm, gpu.multiprocessors,
              static_cast<double>(gpu.memory_bytes) / (1 << 30));
  for (const bool blocking : {false, true}) {
    const char* mode = blocking ? "blocking" : "polled";
    NcclOptions options;
    options.name = absl::StrCat("nccl ", mode);
    options.blocking = blocking;
    options.deterministic = true;
    const Instant begin = Now();
    auto communicator = ConnectNccl(**session, options);
    ExpectOk(communicator.status(), absl::StrCat("connect, ", mode));
    if (!communicator.ok()) continue;
    std::printf("figure: connect %d ranks, %s: %.0f ms, NCCL %s\n", (*communicator)->size(), mode,
                ToSeconds(Now() - begin) * 1e3,
                NcclVersionText((*communicator)->version()).c_str());
    if (!blocking) Memory();
    Check check(**session, **communicator);
    check.Sums();
    check.OtherCollectives();
    check.SameBits();
    check.CostOfCalls(mode);
    check.Registered();
    check.Captured(mode);
  }
  AbortInTheMiddle(**session);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  return trainctl::Main(std::vector<std::string>(argv + 1, argv + argc));
}

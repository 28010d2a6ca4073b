// Our all-reduce through shared memory and over TCP, against Gloo's own (ring), in turns in the
// same run on one machine; then one step of the gradient reducer for the mlp 784-512-256-10.
//
//   allreduce_bench [RANKS …]        (default 2 4)
//
// Each figure is the median time of rank 0 over the repetitions; the ratios say how many times
// faster than Gloo's ours is.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/worker/reducer.h"
#include "tests/process/worker/fake_supervisor.h"

namespace trainctl {
namespace {

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Times {
  double shared = 0;
  double tcp = 0;
  double gloo = 0;
};

Times Compare(Communicator& communicator, Communicator& tcp,
              const std::shared_ptr<gloo::Context>& context, size_t count) {
  std::vector<float> data(count, 1.0f);
  const int repetitions =
      static_cast<int>(std::clamp<size_t>((size_t{256} << 20) / (count * 4), 7, 300));
  std::vector<double> shared, over_tcp, theirs;
  for (int i = 0; i < repetitions + 2; ++i) {
    CHECK(communicator.Barrier().ok());
    Instant start = Now();
    CHECK(communicator.AllReduceSum(data.data(), count).ok());
    const double first = ToSeconds(Now() - start);

    CHECK(communicator.Barrier().ok());
    start = Now();
    CHECK(tcp.AllReduceSum(data.data(), count).ok());
    const double second = ToSeconds(Now() - start);

    CHECK(communicator.Barrier().ok());
    start = Now();
    gloo::AllreduceOptions options(context);
    options.setOutput(data.data(), count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
    const double third = ToSeconds(Now() - start);
    std::fill(data.begin(), data.end(), 1.0f);
    if (i < 2) continue;  // warm-up
    shared.push_back(first);
    over_tcp.push_back(second);
    theirs.push_back(third);
  }
  return {Median(shared), Median(over_tcp), Median(theirs)};
}

void StepOfReducer(Communicator& communicator, int ranks) {
  const std::vector<int64_t> sizes = {784 * 512, 512, 512 * 256, 256, 256 * 10, 10};
  ReducerOptions options;
  options.sums = 2;
  auto reducer = Reducer::Create(&communicator, sizes, std::move(options));
  CHECK(reducer.ok());
  std::vector<double> seconds;
  for (int i = 0; i < 202; ++i) {
    CHECK(communicator.Barrier().ok());
    const Instant start = Now();
    CHECK((*reducer)->BeginStep(1).ok());
    for (int p = static_cast<int>(sizes.size()) - 1; p >= 0; --p) (*reducer)->MarkReady(p);
    (*reducer)->FinishMicroBatch();
    CHECK((*reducer)->Wait().ok());
    if (i >= 2) seconds.push_back(ToSeconds(Now() - start));
  }
  if (communicator.rank() != 0) return;
  std::printf(
      "reducer, %d ranks, 535 818 parameters, nothing to overlap: %.3f ms a step\n  plan: %s\n",
      ranks, Median(seconds) * 1e3, (*reducer)->plan().reason.c_str());
}

void RunRank(FakeSupervisor& supervisor, const std::string& folder, int rank, int ranks) {
  std::unique_ptr<Session> session = supervisor.MakeSession(rank);
  auto communicator = ConnectGloo(*session);
  CHECK(communicator.ok());
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  CommunicatorOptions through_mesh;
  through_mesh.shared_memory = false;
  auto tcp = ConnectGloo(*session, through_mesh);
  CHECK(tcp.ok());
  if (rank == 0) {
    std::printf("%8s %6s %12s %12s %12s %13s %13s\n", "size", "ranks", "shared", "tcp", "gloo",
                "gloo/shared", "gloo/tcp");
  }
  for (size_t bytes = 4 << 10; bytes <= size_t{64} << 20; bytes *= 4) {
    const Times times = Compare(**communicator, **tcp, context, bytes / 4);
    if (rank != 0) continue;
    std::printf("%4zu KiB %6d %9.3f ms %9.3f ms %9.3f ms %13.2f %13.2f\n", bytes >> 10, ranks,
                times.shared * 1e3, times.tcp * 1e3, times.gloo * 1e3, times.gloo / times.shared,
                times.gloo / times.tcp);
    std::fflush(stdout);
  }
  StepOfReducer(**communicator, ranks);
  std::fflush(stdout);
}

void Run(int ranks) {
  FakeSupervisor supervisor(ranks);
  char folder[] = "/tmp/allreduce-bench-XXXXXX";
  CHECK(::mkdtemp(folder) != nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    CHECK(child >= 0);
    if (child == 0) {
      RunRank(supervisor, folder, rank, ranks);
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  std::vector<int> worlds;
  for (int i = 1; i < argc; ++i) worlds.push_back(std::atoi(argv[i]));
  if (worlds.empty()) worlds = {2, 4};
  for (const int ranks : worlds) trainctl::Run(ranks);
  return 0;
}

// allreduce_pair: our all-reduce beside NCCL's own calls, in turns in one run, one worker for each
// GPU. The loop of both is that of nccl-tests: warm up, enqueue a number of calls, wait once.
//
//   allreduce_pair [MiB]     largest message (default 1024)
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/device/device.h"
#include "runtime/device/memory.h"
#include "runtime/nccl/nccl_communicator.h"

namespace trainctl {
namespace {

constexpr int kRepeats = 7;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// NCCL's calls as nccl-tests make them: a blocking communicator, nothing in between.
class Raw {
 public:
  Raw(Session& session, const NcclApi* api) : api_(api) {
    NcclUniqueId id{};
    if (session.identity().rank == 0) CHECK(api->unique_id(&id) == kNcclSuccess);
    auto ids = session.Exchange("raw", absl::string_view(id.bytes, sizeof(id.bytes)), seconds(60));
    CHECK(ids.ok());
    std::memcpy(id.bytes, (*ids)[0].data(), sizeof(id.bytes));
    NcclConfig config = MakeNcclConfig(api->version, true, "raw");
    CHECK(api->init(&comm_, session.identity().world_size, id, session.identity().rank, &config) ==
          kNcclSuccess);
  }
  ~Raw() { api_->destroy(comm_); }
  void AllReduce(void* data, size_t count, CudaStream stream) {
    CHECK(api_->all_reduce(data, data, count, kNcclFloat32, kNcclSum, comm_, stream) ==
          kNcclSuccess);
  }

 private:
  const NcclApi* api_;
  NcclComm comm_ = nullptr;
};

// Seconds of one call.
double Time(int calls, const std::function<void()>& call, const std::function<void()>& wait) {
  for (int i = 0; i < 5; ++i) call();
  wait();
  const Instant begin = Now();
  for (int i = 0; i < calls; ++i) call();
  wait();
  return ToSeconds(Now() - begin) / calls;
}

void Pair(Raw& raw, NcclCommunicator& polled, NcclCommunicator& blocking, void* data,
          void* registered, size_t bytes, const Stream& stream) {
  const size_t count = bytes / 4;
  const int calls = bytes >= size_t{64} << 20 ? 20 : 100;
  std::vector<double> theirs, ours, blocked, enrolled;
  const auto through = [&](NcclCommunicator& communicator, void* memory) {
    return Time(
        calls,
        [&] {
          CHECK(communicator.EnqueueAllReduce(memory, count, ElementType::kFloat32, stream.get())
                    .ok());
        },
        [&] { CHECK(communicator.Await(stream.get()).ok()); });
  };
  for (int i = 0; i < kRepeats; ++i) {
    theirs.push_back(Time(
        calls, [&] { raw.AllReduce(data, count, stream.get()); },
        [&] { CHECK(stream.Wait().ok()); }));
    ours.push_back(through(polled, data));
    blocked.push_back(through(blocking, data));
    if (registered != nullptr) enrolled.push_back(through(blocking, registered));
  }
  if (polled.rank() != 0) return;
  const int n = polled.size();
  const double bus = static_cast<double>(bytes) * 2 * (n - 1) / n * 1e-9;
  std::printf("%12zu %10.2f %10.2f %10.2f %10.2f %9.1f %9.3f %9.3f\n", bytes, Median(theirs) * 1e6,
              Median(ours) * 1e6, Median(blocked) * 1e6,
              enrolled.empty() ? 0.0 : Median(enrolled) * 1e6, bus / Median(theirs),
              Median(ours) / Median(theirs), Median(blocked) / Median(theirs));
  std::fflush(stdout);
}

int Main(size_t largest) {
  auto session = Session::FromEnvironment();
  CHECK(session.ok());
  const SessionIdentity& identity = (*session)->identity();
  const int device = std::min(identity.local_rank, CountDevices().value() - 1);
  CHECK(UseDevice(device).ok());
  const NcclApi* api = LoadNccl().value();
  NcclOptions options;
  options.name = "polled";
  options.blocking = false;
  auto polled = ConnectNccl(**session, options);
  options.name = "blocking";
  options.blocking = true;
  auto blocking = ConnectNccl(**session, options);
  if (!polled.ok() || !blocking.ok()) {
    std::printf("FAILED: %s %s\n", polled.status().ToString().c_str(),
                blocking.status().ToString().c_str());
    return 1;
  }
  Raw raw(**session, api);
  Stream stream = Stream::Create().value();
  DeviceMemory memory = DeviceMemory::Allocate("the message", largest).value();
  CHECK(Fill("the message", memory.data(), 0, largest, stream.get()).ok());
  auto registered = (*blocking)->Allocate("the registered message", largest);
  if (!registered.ok()) std::printf("not registered: %s\n", registered.status().ToString().c_str());
  if (identity.rank == 0) {
    std::printf("NCCL %s, %d ranks; times in us of one call, medians of %d turns\n",
                NcclVersionText(api->version).c_str(), identity.world_size, kRepeats);
    std::printf("%12s %10s %10s %10s %10s %9s %9s %9s\n", "bytes", "raw", "polled", "blocking",
                "enrolled", "busbw", "polled/r", "block/r");
  }
  for (size_t bytes = 4; bytes <= largest; bytes *= bytes < (1 << 20) ? 16 : 4) {
    Pair(raw, **polled, **blocking, memory.data(),
         registered.ok() ? (*registered)->data() : nullptr, bytes, stream);
  }
  return 0;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  return trainctl::Main((argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1024) << 20);
}

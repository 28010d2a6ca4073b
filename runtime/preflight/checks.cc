#include "runtime/preflight/checks.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda_error.h"
#include "runtime/device/device.h"
#include "runtime/device/memory.h"
#include "runtime/json/json_text.h"
#include "runtime/nccl/nccl_communicator.h"
#include "runtime/preflight/folder_session.h"
#include "runtime/preflight/pattern.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMemoryBytes = size_t{512} << 20;
constexpr size_t kCopyBytes = size_t{64} << 20;
constexpr size_t kReduceBytes = size_t{128} << 20;
constexpr int kTimedCopies = 4;
constexpr int kTimedReduces = 10;
constexpr uint64_t kSeed = 0x7261696e;

absl::Status Tell(const Json& line) {
  return WriteAll(STDOUT_FILENO, absl::StrCat(JsonText(line), "\n"), "stdout");
}
absl::Status Begin(const std::string& what) { return Tell({{"begin", what}}); }

double GigabytesPerSecond(double bytes, double seconds) { return bytes / seconds * 1e-9; }

// What a GPU needs for a check: a buffer and a count of wrong words.
struct Place {
  Stream stream;
  DeviceMemory data;
  DeviceMemory wrong;
};

absl::StatusOr<Place> MakePlace(int device, size_t bytes) {
  RETURN_IF_ERROR(UseDevice(device));
  Place place;
  ASSIGN_OR_RETURN(place.stream, Stream::Create());
  ASSIGN_OR_RETURN(place.data, DeviceMemory::Allocate("the pattern", bytes));
  ASSIGN_OR_RETURN(place.wrong, DeviceMemory::Allocate("the count of wrong words", 8));
  RETURN_IF_ERROR(Fill("the count of wrong words", place.wrong.data(), 0, 8, place.stream.get()));
  return place;
}

absl::StatusOr<unsigned long long> CountOf(const Place& place) {
  unsigned long long wrong = 0;
  RETURN_IF_ERROR(Copy("the count of wrong words", &wrong, place.wrong.data(), sizeof(wrong),
                       place.stream.get()));
  RETURN_IF_ERROR(place.stream.Wait());
  return wrong;
}

absl::Status CheckMemoryOf(int device) {
  RETURN_IF_ERROR(Begin(absl::StrCat("memory of GPU ", device)));
  RETURN_IF_ERROR(UseDevice(device));
  ASSIGN_OR_RETURN(const DeviceMemoryUse use, MemoryUse());
  const size_t bytes = std::min(kMemoryBytes, static_cast<size_t>(use.free_bytes) / 4) & ~size_t{7};
  ASSIGN_OR_RETURN(Place place, MakePlace(device, bytes));
  const CudaStream stream = place.stream.get();
  const size_t words = bytes / 8;
  RETURN_IF_ERROR(place.stream.Wait());
  const Instant begin = Now();
  for (const uint64_t seed : {kSeed, ~kSeed}) {
    RETURN_IF_ERROR(FillPattern(place.data.As<uint64_t>(), words, seed, stream));
    RETURN_IF_ERROR(CountWrongWords(place.data.As<uint64_t>(), words, seed,
                                    place.wrong.As<unsigned long long>(), stream));
  }
  ASSIGN_OR_RETURN(const unsigned long long wrong, CountOf(place));
  return Tell({{"memory", device},
               {"bytes", bytes},
               {"wrong", wrong},
               {"gigabytes_per_second",
                GigabytesPerSecond(4.0 * static_cast<double>(bytes), ToSeconds(Now() - begin))}});
}

absl::StatusOr<bool> AllowPeerAccess(int from, int to) {
  int possible = 0;
  RETURN_IF_ERROR(CudaStatus(::cudaDeviceCanAccessPeer(&possible, from, to),
                             absl::StrCat("ask whether GPU ", from, " reaches GPU ", to)));
  if (possible == 0) return false;
  const cudaError_t error = ::cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    ::cudaGetLastError();
    return true;
  }
  RETURN_IF_ERROR(CudaStatus(error, absl::StrCat("let GPU ", from, " reach GPU ", to)));
  return true;
}

absl::Status CheckCopy(int from, int to) {
  RETURN_IF_ERROR(Begin(absl::StrCat("copy from GPU ", from, " to GPU ", to)));
  ASSIGN_OR_RETURN(Place target, MakePlace(to, kCopyBytes));
  RETURN_IF_ERROR(target.stream.Wait());
  ASSIGN_OR_RETURN(Place source, MakePlace(from, kCopyBytes));
  ASSIGN_OR_RETURN(const bool peer_access, AllowPeerAccess(from, to));
  const uint64_t seed = kSeed + static_cast<uint64_t>(from * 1000 + to);
  const size_t words = kCopyBytes / 8;
  RETURN_IF_ERROR(FillPattern(source.data.As<uint64_t>(), words, seed, source.stream.get()));
  RETURN_IF_ERROR(source.stream.Wait());
  const Instant begin = Now();
  for (int i = 0; i < kTimedCopies; ++i) {
    RETURN_IF_ERROR(CudaStatus(::cudaMemcpyPeerAsync(target.data.data(), to, source.data.data(),
                                                     from, kCopyBytes, source.stream.get()),
                               absl::StrCat("copy from GPU ", from, " to GPU ", to)));
  }
  RETURN_IF_ERROR(source.stream.Wait());
  const double seconds = ToSeconds(Now() - begin) / kTimedCopies;
  RETURN_IF_ERROR(UseDevice(to));
  RETURN_IF_ERROR(CountWrongWords(target.data.As<uint64_t>(), words, seed,
                                  target.wrong.As<unsigned long long>(), target.stream.get()));
  ASSIGN_OR_RETURN(const unsigned long long wrong, CountOf(target));
  return Tell(
      {{"copy", from},
       {"to", to},
       {"bytes", kCopyBytes},
       {"wrong", wrong},
       {"peer_access", peer_access ? 1 : 0},
       {"gigabytes_per_second", GigabytesPerSecond(static_cast<double>(kCopyBytes), seconds)}});
}

}  // namespace

absl::Status ListGpus() {
  RETURN_IF_ERROR(Begin("count the GPUs"));
  ASSIGN_OR_RETURN(const int count, CountDevices());
  for (int device = 0; device < count; ++device) {
    ASSIGN_OR_RETURN(const DeviceProperties gpu, PropertiesOf(device));
    RETURN_IF_ERROR(Tell({{"gpu", device},
                          {"name", gpu.name},
                          {"pci", gpu.pci},
                          {"uuid", gpu.uuid},
                          {"sm", gpu.sm},
                          {"memory_bytes", gpu.memory_bytes}}));
  }
  return absl::OkStatus();
}

absl::Status CheckMemory() {
  ASSIGN_OR_RETURN(const int count, CountDevices());
  for (int device = 0; device < count; ++device) RETURN_IF_ERROR(CheckMemoryOf(device));
  return absl::OkStatus();
}

absl::Status CheckCopies(int skip) {
  ASSIGN_OR_RETURN(const int count, CountDevices());
  int number = 0;
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from == to || number++ < skip) continue;
      RETURN_IF_ERROR(CheckCopy(from, to));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCollective(const std::string& folder, int rank, int ranks) {
  RETURN_IF_ERROR(Begin("connect the GPUs by NCCL"));
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session, MakeFolderSession(folder, rank, ranks));
  NcclOptions options;
  options.device = rank;
  ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator, ConnectNccl(*session, options));
  ASSIGN_OR_RETURN(Place place, MakePlace(rank, kReduceBytes));
  const CudaStream stream = place.stream.get();
  const size_t count = kReduceBytes / sizeof(float);
  RETURN_IF_ERROR(Begin(absl::StrCat("all-reduce over ", ranks, " GPUs")));
  RETURN_IF_ERROR(FillTerms(place.data.As<float>(), count, rank, stream));
  RETURN_IF_ERROR(
      communicator->EnqueueAllReduce(place.data.data(), count, ElementType::kFloat32, stream));
  RETURN_IF_ERROR(communicator->Await(stream));
  RETURN_IF_ERROR(CountWrongSums(place.data.As<float>(), count, ranks,
                                 place.wrong.As<unsigned long long>(), stream));
  ASSIGN_OR_RETURN(const unsigned long long wrong, CountOf(place));
  RETURN_IF_ERROR(communicator->Barrier());
  const Instant begin = Now();
  for (int i = 0; i < kTimedReduces; ++i) {
    RETURN_IF_ERROR(
        communicator->EnqueueAllReduce(place.data.data(), count, ElementType::kFloat32, stream));
  }
  RETURN_IF_ERROR(communicator->Await(stream));
  const double seconds = ToSeconds(Now() - begin) / kTimedReduces;
  const double share = 2.0 * (ranks - 1) / ranks;
  return Tell({{"all_reduce", rank},
               {"ranks", ranks},
               {"bytes", kReduceBytes},
               {"wrong", wrong},
               {"nccl", NcclVersionText(communicator->version())},
               {"microseconds", seconds * 1e6},
               {"busbw", share * GigabytesPerSecond(static_cast<double>(kReduceBytes), seconds)}});
}

}  // namespace trainctl

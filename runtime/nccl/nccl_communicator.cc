#include "runtime/nccl/nccl_communicator.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/device/memory.h"
#include "runtime/nccl/nccl_link.h"
#include "runtime/nccl/nccl_peers.h"

namespace trainctl {
namespace {

absl::StatusOr<NcclType> TypeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return kNcclFloat32;
    case ElementType::kFloat64:
      return kNcclFloat64;
    case ElementType::kFloat16:
      return kNcclFloat16;
    case ElementType::kBFloat16:
      return kNcclBfloat16;
    case ElementType::kBytes:
      break;
  }
  return absl::InvalidArgumentError("sum on the GPU: bytes have no sum");
}

// By it, NCCL too tells whether two ranks share a GPU.
std::string NodeAsNcclTakesIt() {
  if (const char* named = ::getenv("NCCL_HOSTID"); named != nullptr) return named;
  char node[256] = "?";
  ::gethostname(node, sizeof(node) - 1);
  return node;
}

class PlainMemory : public NcclMemory {
 public:
  explicit PlainMemory(DeviceMemory memory) : memory_(std::move(memory)) {}
  void* data() const override { return memory_.data(); }
  bool registered() const override { return false; }

 private:
  DeviceMemory memory_;
};

class RegisteredMemory : public NcclMemory {
 public:
  RegisteredMemory(const NcclApi* api, std::shared_ptr<NcclLink> link, void* data, Duration timeout)
      : api_(api), link_(std::move(link)), data_(data), timeout_(timeout) {}
  ~RegisteredMemory() override {
    if (registration_ != nullptr) {
      // After a failure the communicator is gone, and the registration with it.
      link_
          ->Call(
              "withdraw a buffer from NCCL",
              [this](NcclComm comm) { return api_->withdraw(comm, registration_); },
              Now() + timeout_)
          .IgnoreError();
    }
    api_->mem_free(data_);
  }
  absl::Status Register(absl::string_view name, size_t bytes) {
    return link_->Call(
        absl::StrCat("register ", name, " with NCCL"),
        [&](NcclComm comm) { return api_->enroll(comm, data_, bytes, &registration_); },
        Now() + timeout_);
  }
  void* data() const override { return data_; }
  bool registered() const override { return true; }

 private:
  const NcclApi* const api_;
  const std::shared_ptr<NcclLink> link_;
  void* const data_;
  const Duration timeout_;
  void* registration_ = nullptr;
};

class Implementation : public NcclCommunicator {
 public:
  Implementation(Session& session, const NcclApi* api, std::unique_ptr<CommunicatorGpu> gpu,
                 const NcclOptions& options)
      : session_(session),
        api_(api),
        gpu_(std::move(gpu)),
        rank_(session.identity().rank),
        size_(session.identity().world_size),
        timeout_(options.collective_timeout),
        link_(std::make_shared<NcclLink>(
            api, options.blocking,
            absl::StrCat(session.identity().job_id, " epoch ", session.identity().epoch.value),
            gpu_->enter())) {}
  ~Implementation() override {
    session_.OnLost(nullptr);
    gpu_->enter()().IgnoreError();
    link_.reset();
  }

  absl::Status Connect(const NcclOptions& options);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int version() const override { return api_->version; }
  bool recovers_in_process() const override { return NcclRecoversInProcess(api_->version); }

  absl::Status AllReduceSum(float* data, size_t count, int bucket) override {
    RETURN_IF_ERROR(EnqueueAllReduce(data, count, ElementType::kFloat32, gpu_->stream(), bucket));
    return Await(gpu_->stream());
  }
  absl::Status AllReduceSum(double* data, size_t count) override {
    RETURN_IF_ERROR(EnqueueAllReduce(data, count, ElementType::kFloat64, gpu_->stream(), -1));
    return Await(gpu_->stream());
  }
  absl::Status ReduceScatterSum(const float* data, float* out, size_t count) override {
    RETURN_IF_ERROR(
        EnqueueReduceScatter(data, out, count, ElementType::kFloat32, gpu_->stream(), -1));
    return Await(gpu_->stream());
  }
  absl::Status AllGather(const void* in, void* out, size_t bytes) override {
    RETURN_IF_ERROR(EnqueueAllGather(in, out, bytes, gpu_->stream()));
    return Await(gpu_->stream());
  }
  absl::Status Broadcast(void* data, size_t bytes, int root) override {
    RETURN_IF_ERROR(EnqueueBroadcast(data, bytes, root, gpu_->stream()));
    return Await(gpu_->stream());
  }
  absl::Status Barrier() override {
    RETURN_IF_ERROR(Enqueue(CollectiveOp::kBarrier, 0, ElementType::kBytes, -1, gpu_->stream(),
                            [&](NcclComm comm) {
                              return api_->all_reduce(gpu_->scratch(), gpu_->scratch(), 1,
                                                      kNcclFloat32, kNcclSum, comm, gpu_->stream());
                            }));
    return Await(gpu_->stream());
  }
  void Abort(absl::string_view reason) override { link_->Fail(absl::AbortedError(reason)); }

  absl::Status EnqueueAllReduce(void* data, size_t count, ElementType type, CudaStream stream,
                                int bucket) override {
    ASSIGN_OR_RETURN(const NcclType element, TypeOf(type));
    return Enqueue(CollectiveOp::kAllReduce, count * BytesOf(type), type, bucket, stream,
                   [&](NcclComm comm) {
                     return api_->all_reduce(data, data, count, element, kNcclSum, comm, stream);
                   });
  }
  absl::Status EnqueueReduceScatter(const void* data, void* out, size_t count, ElementType type,
                                    CudaStream stream, int bucket) override {
    ASSIGN_OR_RETURN(const NcclType element, TypeOf(type));
    return Enqueue(CollectiveOp::kReduceScatter, count * BytesOf(type) * ranks(), type, bucket,
                   stream, [&](NcclComm comm) {
                     return api_->reduce_scatter(data, out, count, element, kNcclSum, comm, stream);
                   });
  }
  absl::Status EnqueueAllGather(const void* in, void* out, size_t bytes,
                                CudaStream stream) override {
    return Enqueue(
        CollectiveOp::kAllGather, bytes * ranks(), ElementType::kBytes, -1, stream,
        [&](NcclComm comm) { return api_->all_gather(in, out, bytes, kNcclInt8, comm, stream); });
  }
  absl::Status EnqueueBroadcast(void* data, size_t bytes, int root, CudaStream stream) override {
    return Enqueue(CollectiveOp::kBroadcast, bytes, ElementType::kBytes, -1, stream,
                   [&](NcclComm comm) {
                     return api_->broadcast(data, data, bytes, kNcclInt8, root, comm, stream);
                   });
  }
  absl::Status Await(CudaStream stream) override;
  absl::StatusOr<std::unique_ptr<NcclMemory>> Allocate(absl::string_view name,
                                                       size_t bytes) override;

 private:
  // Of a collective that the GPU may still be at.
  struct Pending {
    uint64_t sequence;
    CudaStream stream;
  };

  template <typename Body>
  absl::Status Enqueue(CollectiveOp op, uint64_t bytes, ElementType type, int bucket,
                       CudaStream stream, const Body& body) {
    RETURN_IF_ERROR(link_->failure());
    last_ = op;
    const uint64_t sequence = BeginCollective(&session_.page(), op, bytes, type, bucket);
    if (pending_.size() == kCollectiveRingSize) pending_.erase(pending_.begin());
    pending_.push_back({sequence, stream});
    return link_->Call(CollectiveOpName(op), body, Now() + timeout_);
  }
  size_t ranks() const { return static_cast<size_t>(size_); }

  Session& session_;
  const NcclApi* const api_;
  const std::unique_ptr<CommunicatorGpu> gpu_;
  const int rank_;
  const int size_;
  const Duration timeout_;
  std::shared_ptr<NcclLink> link_;
  std::vector<Pending> pending_;
  CollectiveOp last_ = CollectiveOp::kBarrier;
};

absl::Status Implementation::Connect(const NcclOptions& options) {
  if (NcclWasAborted() && !recovers_in_process()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "connect the GPUs: NCCL ", NcclVersionText(api_->version),
        " crashes in a process in which a communicator was aborted; end this process, a new one "
        "recovers (NCCL 2.28.9 has it mended)"));
  }
  const Instant deadline = Now() + options.connect_timeout;
  session_.OnLost([link = link_.get()](absl::string_view reason) {
    link->Fail(absl::UnavailableError(reason));
  });
  NcclPeer own;
  own.version = api_->version;
  own.node = NodeAsNcclTakesIt();
  own.pci = gpu_->pci();
  if (rank_ == 0) {
    NcclUniqueId id{};
    const NcclResult made = api_->unique_id(&id);
    if (made == kNcclSuccess) {
      own.id.assign(id.bytes, sizeof(id.bytes));
    } else {
      own.error = std::string(link_->StatusOf(made, "make the unique id").message());
    }
  }
  ASSIGN_OR_RETURN(std::vector<std::string> texts,
                   session_.Exchange(options.name, EncodePeer(own), options.connect_timeout));
  ASSIGN_OR_RETURN(std::vector<NcclPeer> peers, DecodePeers(texts));
  RETURN_IF_ERROR(CheckPeers(peers));
  NcclUniqueId id{};
  if (peers[0].id.size() != sizeof(id.bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("connect the GPUs: rank 0's unique id has ", peers[0].id.size(), " bytes"));
  }
  std::memcpy(id.bytes, peers[0].id.data(), sizeof(id.bytes));
  return link_->Connect(id, rank_, size_, deadline);
}

absl::Status Implementation::Await(CudaStream stream) {
  RETURN_IF_ERROR(link_->Wait(
      CollectiveOpName(last_), [&] { return gpu_->IsDone(stream); }, Now() + timeout_));
  std::erase_if(pending_, [&](const Pending& pending) {
    if (pending.stream != stream) return false;
    EndCollective(&session_.page(), pending.sequence);
    return true;
  });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<NcclMemory>> Implementation::Allocate(absl::string_view name,
                                                                     size_t bytes) {
  RETURN_IF_ERROR(link_->failure());
  if (api_->mem_alloc == nullptr || api_->mem_free == nullptr || api_->enroll == nullptr ||
      api_->withdraw == nullptr) {
    ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(name, bytes));
    return std::make_unique<PlainMemory>(std::move(memory));
  }
  void* data = nullptr;
  const NcclResult allocated = api_->mem_alloc(&data, bytes);
  if (allocated != kNcclSuccess) {
    return link_->StatusOf(allocated, absl::StrCat("allocate ", name, ", ", bytes, " bytes"));
  }
  auto memory = std::make_unique<RegisteredMemory>(api_, link_, data, timeout_);
  RETURN_IF_ERROR(memory->Register(name, bytes));
  return memory;
}

void AskForDeterminism(Session& session) {
  constexpr std::pair<const char*, const char*> kSettings[] = {{"NCCL_ALGO", "Ring"},
                                                               {"NCCL_NVLS_ENABLE", "0"}};
  for (const auto& [name, value] : kSettings) {
    const char* yours = ::getenv(name);
    if (yours == nullptr) {
      ::setenv(name, value, 1);
    } else if (std::strcmp(yours, value) != 0) {
      session.Note(absl::StrCat("your ", name, "=", yours, " wins over ", value,
                                ": sums on the GPUs may differ from run to run"));
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectNccl(Session& session,
                                                              const NcclOptions& options) {
  if (options.deterministic) AskForDeterminism(session);
  int device = options.device;
  if (device < 0) {
    ASSIGN_OR_RETURN(const int count, CountDevices());
    device = count == 1 ? 0 : session.identity().local_rank;
  }
  ASSIGN_OR_RETURN(const NcclApi* api,
                   LoadNccl(options.library.empty() ? "libnccl.so.2" : options.library));
  ASSIGN_OR_RETURN(std::unique_ptr<CommunicatorGpu> gpu, CommunicatorGpu::Open(device));
  return ConnectNccl(session, options, api, std::move(gpu));
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectNccl(
    Session& session, const NcclOptions& options, const NcclApi* api,
    std::unique_ptr<CommunicatorGpu> gpu) {
  RETURN_IF_ERROR(gpu->enter()());
  auto communicator = std::make_unique<Implementation>(session, api, std::move(gpu), options);
  RETURN_IF_ERROR(communicator->Connect(options));
  return communicator;
}

}  // namespace trainctl

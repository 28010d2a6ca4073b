#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/bench/subject.h"
#include "runtime/device/device.h"
#include "runtime/device/memory.h"
#include "runtime/nccl/nccl_communicator.h"

namespace trainctl {
namespace {

class NcclSubject : public Subject {
 public:
  explicit NcclSubject(std::unique_ptr<NcclCommunicator> communicator)
      : communicator_(std::move(communicator)) {}

  absl::Status Start(size_t largest) {
    ASSIGN_OR_RETURN(const int device, CurrentDevice());
    ASSIGN_OR_RETURN(const DeviceProperties gpu, PropertiesOf(device));
    name_ = absl::StrCat("NCCL ", NcclVersionText(communicator_->version()), ", ", gpu.name);
    ASSIGN_OR_RETURN(stream_, Stream::Create(Stream::Priority::kHigh));
    ASSIGN_OR_RETURN(data_, DeviceMemory::Allocate("the message", largest));
    return Fill("the message", data_.data(), 0, largest, stream_.get());
  }

  std::string name() const override { return name_; }
  int Calls(size_t bytes) const override { return bytes >= size_t{64} << 20 ? 20 : 100; }
  absl::Status Put(const std::vector<float>& values) override {
    RETURN_IF_ERROR(Copy("the message", data_.data(), values.data(), values.size() * sizeof(float),
                         stream_.get()));
    return stream_.Wait();
  }
  absl::StatusOr<std::vector<float>> Get(size_t count) override {
    std::vector<float> values(count);
    RETURN_IF_ERROR(
        Copy("the sums", values.data(), data_.data(), count * sizeof(float), stream_.get()));
    RETURN_IF_ERROR(stream_.Wait());
    return values;
  }
  absl::Status AllReduce(size_t bytes, int calls) override {
    for (int i = 0; i < calls; ++i) {
      RETURN_IF_ERROR(communicator_->EnqueueAllReduce(data_.data(), bytes / sizeof(float),
                                                      ElementType::kFloat32, stream_.get(), 0));
    }
    return communicator_->Await(stream_.get());
  }
  absl::Status Barrier() override { return communicator_->Barrier(); }

 private:
  const std::unique_ptr<NcclCommunicator> communicator_;
  std::string name_;
  Stream stream_;
  DeviceMemory data_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Subject>> MakeNcclSubject(Session& session, size_t largest) {
  ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator, ConnectNccl(session));
  auto subject = std::make_unique<NcclSubject>(std::move(communicator));
  RETURN_IF_ERROR(subject->Start(largest));
  return subject;
}

bool HasGpu() { return CountDevices().ok(); }

}  // namespace trainctl

#include <algorithm>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/bench/subject.h"
#include "runtime/worker/gloo_communicator.h"

namespace trainctl {
namespace {

class GlooSubject : public Subject {
 public:
  GlooSubject(std::unique_ptr<Communicator> communicator, size_t largest)
      : communicator_(std::move(communicator)), data_(largest / sizeof(float)) {}

  std::string name() const override { return "CPU (shared memory within a node, else Gloo)"; }
  int Calls(size_t bytes) const override {
    return static_cast<int>(std::clamp<size_t>((size_t{256} << 20) / bytes, 5, 100));
  }
  absl::Status Put(const std::vector<float>& values) override {
    std::copy(values.begin(), values.end(), data_.begin());
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<float>> Get(size_t count) override {
    return std::vector<float>(data_.begin(), data_.begin() + static_cast<ptrdiff_t>(count));
  }
  absl::Status AllReduce(size_t bytes, int calls) override {
    for (int i = 0; i < calls; ++i) {
      RETURN_IF_ERROR(communicator_->AllReduceSum(data_.data(), bytes / sizeof(float), 0));
    }
    return absl::OkStatus();
  }
  absl::Status Barrier() override { return communicator_->Barrier(); }

 private:
  const std::unique_ptr<Communicator> communicator_;
  std::vector<float> data_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Subject>> MakeGlooSubject(Session& session, size_t largest) {
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, ConnectGloo(session));
  return std::make_unique<GlooSubject>(std::move(communicator), largest);
}

}  // namespace trainctl

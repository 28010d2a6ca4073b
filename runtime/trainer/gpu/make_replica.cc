#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/trainer/gpu/gpu_gpt.h"
#include "runtime/trainer/gpu/gpu_replica.h"

namespace trainctl {
namespace {

absl::StatusOr<FoundGpu> Find(int local_rank) {
  ASSIGN_OR_RETURN(const int count, CountDevices());
  // Whoever started this process may have given it one GPU, which is number 0 then.
  const bool given = count == 1 && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  const int number = given ? 0 : local_rank;
  if (number >= count) {
    return absl::UnavailableError(absl::StrCat("this is worker ", local_rank,
                                               " of its node, which has ", count,
                                               " GPUs, and each worker needs its own"));
  }
  ASSIGN_OR_RETURN(const DeviceProperties properties, PropertiesOf(number));
  return FoundGpu{number, properties.sm, properties.name};
}

}  // namespace

FoundGpu LookForGpu(int local_rank) {
  absl::StatusOr<FoundGpu> found = Find(local_rank);
  return found.ok() ? *std::move(found) : FoundGpu{.text = std::string(found.status().message())};
}

absl::StatusOr<std::unique_ptr<Replica>> MakeReplica(const TrainConfig& config,
                                                     const OpenedData& data,
                                                     const std::vector<ParameterSpec>& specs,
                                                     const ReplicaRequest& request) {
  const ModelConfig& model = config.model;
  const GptOptions options = {.layers = model.layers,
                              .width = model.width,
                              .heads = model.heads,
                              .context = model.context,
                              .vocabulary = data.classes,
                              .dropout = model.dropout,
                              .seed = config.seed};
  return GpuReplica::Create(
      {.device = request.gpu.number,
       .precision = request.precision,
       .optimizer = config.optimizer,
       .clip = config.clip,
       .samples = request.samples,
       .targets_per_sample = data.train->targets_per_sample(),
       .ranks = request.ranks,
       .session = request.session,
       .bucket_plan = request.bucket_plan},
      specs, [&](cuda::Dtype type, cuda::Linear* linear) {
        return std::make_unique<GpuGpt>(GpuGptOptions{options, type, model.recompute}, linear);
      });
}

}  // namespace trainctl

#include "runtime/trainer/gpu/gpu_replica.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/pack.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"

namespace trainctl {
namespace {

constexpr size_t kProductWorkspaceBytes = size_t{64} << 20;
constexpr float kFirstLossScale = 65536;

size_t Bytes(int64_t n) { return static_cast<size_t>(n); }

}  // namespace

absl::StatusOr<std::unique_ptr<GpuReplica>> GpuReplica::Create(const GpuReplicaOptions& options,
                                                               std::vector<ParameterSpec> specs,
                                                               const ModelMaker& make_model) {
  CHECK(options.precision != Precision::kAuto && options.samples > 0);
  RETURN_IF_ERROR(UseDevice(options.device));
  auto replica = std::unique_ptr<GpuReplica>(new GpuReplica(options, std::move(specs)));
  RETURN_IF_ERROR(replica->Allocate(make_model));
  return replica;
}

cuda::Dtype GpuReplica::type() const {
  switch (options_.precision) {
    case Precision::kBf16:
      return cuda::Dtype::kBfloat16;
    case Precision::kFp16:
      return cuda::Dtype::kFloat16;
    default:
      return cuda::Dtype::kFloat32;
  }
}

absl::Status GpuReplica::Allocate(const ModelMaker& make_model) {
  ASSIGN_OR_RETURN(stream_, Stream::Create());
  ASSIGN_OR_RETURN(workspace_, DeviceMemory::Allocate("workspace of the matrix products",
                                                      kProductWorkspaceBytes));
  ASSIGN_OR_RETURN(linear_, cuda::Linear::Open({.workspace = workspace_.data(),
                                                .workspace_bytes = kProductWorkspaceBytes,
                                                .tf32 = options_.precision == Precision::kTf32}));
  model_ = make_model(type(), linear_.get());
  layout_ = PlanArena(specs_, model_->PaddedSizes());
  const size_t floats = Bytes(layout_.total) * sizeof(float);
  ASSIGN_OR_RETURN(masters_, DeviceMemory::Allocate("parameters", floats));
  ASSIGN_OR_RETURN(gradients_, DeviceMemory::Allocate("gradients", floats));
  ASSIGN_OR_RETURN(moments_,
                   DeviceMemory::Allocate("state of the optimizer", floats * Bytes(moments())));
  if (type() != cuda::Dtype::kFloat32) {
    ASSIGN_OR_RETURN(copies_, DeviceMemory::Allocate("16-bit parameters", floats / 2));
  }
  ASSIGN_OR_RETURN(shared_, DeviceMemory::Allocate("results of a step", sizeof(Shared)));
  ListTensors();
  ASSIGN_OR_RETURN(norm_workspace_,
                   DeviceMemory::Allocate("workspace of the norm",
                                          Bytes(cuda::SumOfSquaresWorkspace(gradient_tensors_))));
  const int64_t targets = options_.samples * options_.targets_per_sample;
  const size_t batch =
      Bytes(2 * targets) * sizeof(int32_t) + Bytes(options_.samples) * sizeof(int64_t);
  for (InFlight& slot : in_flight_) {
    ASSIGN_OR_RETURN(slot.told, PinnedMemory::Allocate("results of a step", sizeof(Told)));
    ASSIGN_OR_RETURN(slot.requests,
                     PinnedMemory::Allocate("requests of a rank", 2 * sizeof(double)));
    ASSIGN_OR_RETURN(slot.batch, PinnedMemory::Allocate("a batch", batch));
    ASSIGN_OR_RETURN(slot.device_batch, DeviceMemory::Allocate("a batch", batch));
    ASSIGN_OR_RETURN(slot.told_event, Event::Create());
    ASSIGN_OR_RETURN(slot.batch_event, Event::Create());
  }
  RETURN_IF_ERROR(model_->Reserve(options_.samples));
  return options_.ranks > 1 ? Connect() : absl::OkStatus();
}

absl::Status GpuReplica::Connect() {
  CHECK(options_.session != nullptr);
  NcclOptions nccl;
  nccl.device = options_.device;
  nccl.deterministic = true;
  ASSIGN_OR_RETURN(communicator_, ConnectNccl(*options_.session, nccl));
  RETURN_IF_ERROR(Fill("the gradients", gradients_.data(), 0, gradients_.bytes(), stream_.get()));
  RETURN_IF_ERROR(stream_.Wait());
  ASSIGN_OR_RETURN(exchange_, GradientExchange::Create(communicator_.get(), layout_, gradients(),
                                                       options_.bucket_plan));
  return absl::OkStatus();
}

std::string GpuReplica::bucket_plan() const {
  return exchange_ == nullptr ? "" : PlanToJson(exchange_->plan());
}

void GpuReplica::ListTensors() {
  GpuBinding binding;
  float* const masters = masters_.As<float>();
  for (size_t p = 0; p < specs_.size(); ++p) {
    const ArenaSlot& slot = layout_.slots[p];
    const float decay =
        specs_[p].decay ? static_cast<float>(options_.optimizer.weight_decay) : 0.0f;
    float* const gradient = gradients() + slot.offset;
    float* const moment = moments_.As<float>() + slot.offset;
    void* const copy = copies_.data() == nullptr ? nullptr : copies_.As<uint16_t>() + slot.offset;
    gradient_tensors_.push_back({gradient, slot.padded});
    if (moments() == 2) {
      adamw_.push_back({masters + slot.offset, copy, gradient, moment, moment + layout_.total,
                        slot.padded, slot.offset, decay});
    } else {
      sgd_.push_back(
          {masters + slot.offset, copy, gradient, moment, slot.padded, slot.offset, decay});
    }
    binding.parameters.push_back(copy == nullptr ? masters + slot.offset : copy);
    binding.gradients.push_back(gradient);
  }
  binding.totals = &shared()->told.totals;
  if (scales_loss()) binding.loss_scale = &shared()->told.loss_scale.scale;
  model_->Bind(std::move(binding));
}

// Where the tensor with this index in a state lies.
float* GpuReplica::At(const StateTensor& tensor, size_t index) const {
  const size_t p = index % specs_.size(), array = index / specs_.size();
  CHECK(tensor.size == layout_.slots[p].size && array <= Bytes(moments()));
  float* const base =
      array == 0 ? masters_.As<float>()
                 : moments_.As<float>() + (static_cast<int64_t>(array) - 1) * layout_.total;
  return base + layout_.slots[p].offset;
}

absl::Status GpuReplica::Upload(const std::vector<StateTensor>& state, const UpdateState& update) {
  CHECK(state.size() == specs_.size() * Bytes(moments() + 1) && results_waiting() == 0);
  for (const DeviceMemory* memory : {&masters_, &gradients_, &moments_, &shared_}) {
    RETURN_IF_ERROR(
        Fill("the state of the training", memory->data(), 0, memory->bytes(), stream_.get()));
  }
  for (size_t i = 0; i < state.size(); ++i) {
    RETURN_IF_ERROR(Copy(state[i].name, At(state[i], i), state[i].data,
                         Bytes(state[i].size) * sizeof(float), stream_.get()));
  }
  Shared first{};
  first.told.counts.applied = update.updates;
  first.told.loss_scale.scale =
      update.loss_scale > 0 ? static_cast<float>(update.loss_scale) : kFirstLossScale;
  first.told.loss_scale.good_steps = static_cast<int32_t>(update.good_steps);
  RETURN_IF_ERROR(
      Copy("the counts of the training", shared_.data(), &first, sizeof(first), stream_.get()));
  RETURN_IF_ERROR(RoundParameters());
  return stream_.Wait();
}

absl::Status GpuReplica::RoundParameters() {
  if (copies_.data() == nullptr) return absl::OkStatus();
  const cuda::PackItem all = {masters_.data(), 0, layout_.total};
  return cuda::Pack({&all, 1}, cuda::Dtype::kFloat32, copies_.data(), type(), 1, nullptr,
                    stream_.get());
}

absl::Status GpuReplica::Download(const std::vector<StateTensor>& state) {
  for (size_t i = 0; i < state.size(); ++i) {
    RETURN_IF_ERROR(Copy(state[i].name, state[i].data, At(state[i], i),
                         Bytes(state[i].size) * sizeof(float), stream_.get()));
  }
  return stream_.Wait();
}

absl::Status GpuReplica::BeginStep(int micro_batches) {
  micro_batches_left_ = micro_batches;
  if (exchange_ != nullptr) exchange_->BeginStep();
  RETURN_IF_ERROR(Fill("the gradients", gradients_.data(), 0, gradients_.bytes(), stream_.get()));
  return Fill("the loss", &shared()->told.totals, 0, sizeof(cuda::ClassifierTotals), stream_.get());
}

absl::StatusOr<GpuBatch> GpuReplica::Send(const Batch& batch) {
  CHECK(batch.count <= options_.samples);
  InFlight& slot = in_flight_[batches_++ % kInFlight];
  RETURN_IF_ERROR(slot.batch_event.Wait());
  const size_t targets = Bytes(batch.count * options_.targets_per_sample);
  char* const memory = slot.batch.As<char>();
  size_t used = 0;
  const auto add = [&](const void* from, size_t bytes) {
    std::memcpy(memory + used, from, bytes);
    const size_t at = used;
    used += bytes;
    return slot.device_batch.As<char>() + at;
  };
  GpuBatch sent;
  sent.count = batch.count;
  sent.ids = reinterpret_cast<const int64_t*>(add(batch.ids, Bytes(batch.count) * sizeof(int64_t)));
  sent.targets = reinterpret_cast<const int32_t*>(add(batch.targets, targets * sizeof(int32_t)));
  sent.tokens = reinterpret_cast<const int32_t*>(add(batch.tokens, targets * sizeof(int32_t)));
  RETURN_IF_ERROR(
      Copy("a batch", slot.device_batch.data(), slot.batch.data(), used, stream_.get()));
  RETURN_IF_ERROR(slot.batch_event.Record(stream_.get()));
  return sent;
}

absl::Status GpuReplica::Accumulate(const Batch& batch, float scale, uint64_t step) {
  ASSIGN_OR_RETURN(const GpuBatch sent, Send(batch));
  const bool last = --micro_batches_left_ == 0;
  if (exchange_ != nullptr) exchange_->BeginMicroBatch(last);
  const auto ready = [this](int parameter) -> absl::Status {
    return exchange_ == nullptr ? absl::OkStatus() : exchange_->MarkReady(parameter, stream_);
  };
  return model_->ForwardBackward(sent, scale, step, ready, stream_.get());
}

absl::Status GpuReplica::Exchange(const StepRequests& requests) {
  double* const mine = in_flight_[enqueued_ % kInFlight].requests.As<double>();
  mine[0] = requests.stop ? 1 : 0;
  mine[1] = requests.checkpoint ? 1 : 0;
  double* const sums = &shared()->told.stops;
  RETURN_IF_ERROR(Copy("the requests of a rank", sums, mine, 2 * sizeof(double), stream_.get()));
  return exchange_ == nullptr ? absl::OkStatus() : exchange_->Finish(sums, kSummed, stream_);
}

absl::Status GpuReplica::Update(double learning_rate, const StepRequests& requests) {
  CHECK(results_waiting() < kInFlight);
  RETURN_IF_ERROR(Exchange(requests));
  const OptimizerOptions& o = options_.optimizer;
  Shared* const s = shared();
  const cuda::LossScale* const scale = scales_loss() ? &s->told.loss_scale : nullptr;
  RETURN_IF_ERROR(cuda::SumOfSquares(gradient_tensors_, cuda::Dtype::kFloat32,
                                     norm_workspace_.data(), &s->sum_of_squares, &s->first_bad,
                                     stream_.get()));
  const bool adamw = o.kind == OptimizerOptions::Kind::kAdamW;
  const cuda::UpdateRule rule = {.max_norm = options_.clip,
                                 .gradient_scale = 1,
                                 .beta1 = adamw ? o.beta1 : 0,
                                 .beta2 = adamw ? o.beta2 : 0};
  RETURN_IF_ERROR(cuda::PlanUpdate(rule, &s->sum_of_squares, &s->first_bad,
                                   scale == nullptr ? nullptr : &scale->scale, &s->told.counts,
                                   &s->told.plan, stream_.get()));
  if (adamw) {
    RETURN_IF_ERROR(cuda::AdamW({learning_rate, o.beta1, o.beta2, o.epsilon}, adamw_, type(),
                                cuda::Dtype::kFloat32, {}, &s->told.plan, stream_.get()));
  } else {
    RETURN_IF_ERROR(cuda::Sgd({learning_rate, o.momentum}, sgd_, type(), cuda::Dtype::kFloat32, {},
                              &s->told.plan, stream_.get()));
  }
  if (scales_loss()) {
    RETURN_IF_ERROR(cuda::UpdateLossScale({}, &s->told.plan, &s->told.loss_scale, stream_.get()));
  }
  InFlight& slot = in_flight_[enqueued_++ % kInFlight];
  RETURN_IF_ERROR(
      Copy("the results of a step", slot.told.data(), &s->told, sizeof(Told), stream_.get()));
  RETURN_IF_ERROR(slot.told_event.Record(stream_.get()));
  // The update still runs then, behind which the next step is enqueued.
  return exchange_ == nullptr ? absl::OkStatus() : exchange_->Await();
}

absl::StatusOr<StepResult> GpuReplica::TakeResult() {
  CHECK(results_waiting() > 0);
  InFlight& slot = in_flight_[taken_++ % kInFlight];
  RETURN_IF_ERROR(slot.told_event.Wait());
  const Told& told = *slot.told.As<Told>();
  StepResult result;
  result.loss_sum = told.totals.loss_sum;
  result.requests = {told.stops > 0, told.checkpoints > 0};
  result.norm = told.plan.norm;
  result.bad_tensor = told.plan.bad_tensor;
  result.update.updates = told.counts.applied;
  if (scales_loss()) {
    result.update.loss_scale = static_cast<double>(told.loss_scale.scale);
    result.update.good_steps = told.loss_scale.good_steps;
    result.skipped_at_floor = told.loss_scale.at_floor;
  }
  return result;
}

absl::StatusOr<EvaluateResult> GpuReplica::Evaluate(const Batch& batch) {
  CHECK(results_waiting() == 0);
  EvaluateResult result;
  // A batch that is larger than those of the training goes in parts.
  for (int64_t first = 0; first < batch.count; first += options_.samples) {
    Batch part = batch;
    part.count = std::min(options_.samples, batch.count - first);
    part.tokens += first * options_.targets_per_sample;
    part.targets += first * options_.targets_per_sample;
    part.ids += first;
    RETURN_IF_ERROR(
        Fill("the loss", &shared()->told.totals, 0, sizeof(cuda::ClassifierTotals), stream_.get()));
    ASSIGN_OR_RETURN(const GpuBatch sent, Send(part));
    RETURN_IF_ERROR(model_->Evaluate(sent, stream_.get()));
    Told* const told = in_flight_[0].told.As<Told>();
    RETURN_IF_ERROR(Copy("the losses", &told->totals, &shared()->told.totals,
                         sizeof(cuda::ClassifierTotals), stream_.get()));
    RETURN_IF_ERROR(stream_.Wait());
    result.loss_sum += told->totals.loss_sum;
    result.correct += told->totals.correct;
    result.count += part.count * options_.targets_per_sample;
  }
  return result;
}

}  // namespace trainctl

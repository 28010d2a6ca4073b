#include "runtime/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/digest.h"
#include "runtime/trainer/checkpointing.h"
#include "runtime/trainer/evaluation.h"
#include "runtime/trainer/recovery.h"
#include "runtime/trainer/replica.h"
#include "runtime/trainer/training_state.h"
#include "runtime/trainer/workspace.h"
#include "runtime/worker/clip.h"
#include "runtime/worker/drift.h"
#include "runtime/worker/reducer.h"

namespace trainctl {
namespace {

// What travels with the gradients of every step.
enum Sum { kLossSum, kStopSum, kCheckpointSum, kSums };

// Steps in a row that a float16 run may skip with the smallest loss scale before it has diverged.
constexpr int kMostSkippedAtFloor = 10;

class Trainer {
 public:
  Trainer(const TrainConfig& config, const TrainerOptions& options, Session& session,
          Communicator& communicator)
      : config_(config),
        options_(options),
        session_(session),
        page_(session.page()),
        communicator_(communicator) {}

  absl::Status Run() {
    SetPhase(WorkerPhase::kInit);
    RETURN_IF_ERROR(OpenDataAndModel());
    RETURN_IF_ERROR(ChooseWhereToTrain());
    RETURN_IF_ERROR(Resume());
    RETURN_IF_ERROR(choice_.gpu ? StartReplica() : StartReducer());
    RETURN_IF_ERROR(OpenLossFile());
    RETURN_IF_ERROR(Loop());
    if (!stopped_) RETURN_IF_ERROR(Evaluate());
    SetPhase(WorkerPhase::kIdle);
    return CheckSaved();
  }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void SetPhase(WorkerPhase phase) {
    page_.phase.store(static_cast<uint32_t>(phase), std::memory_order_relaxed);
    page_.phase_since_ns.store(Now().ns, std::memory_order_relaxed);
  }
  int rank() const { return communicator_.rank(); }

  absl::Status OpenDataAndModel();
  void AllocateState();
  absl::Status ChooseWhereToTrain();
  absl::StatusOr<std::string> ChoosePlan() const;
  absl::Status StartReplica();
  void StartFresh();
  absl::Status Resume();
  absl::Status StartReducer();
  absl::Status OpenLossFile();
  void BindGradients();

  absl::Status Loop();
  absl::Status ComputeGradients(absl::Span<const int64_t> ids, double scale, double* loss_sum);
  absl::Status TrainStep();
  absl::Status ApplyGradients();
  absl::Status TrainStepOnReplica();
  absl::Status TakeResults(int leave);
  absl::Status JudgeReplica(const StepResult& result, int64_t step);
  absl::Status FetchState();
  // Of the step that is the `step`-th of the run.
  absl::Status FinishStep(int64_t step, double loss);
  absl::Status CheckDrift();
  absl::Status Save();
  absl::Status CheckSaved();
  Progress CurrentProgress() const;
  absl::Status Evaluate();

  const TrainConfig config_;
  const TrainerOptions options_;
  Session& session_;
  WorkerPage& page_;
  Communicator& communicator_;

  OpenedData data_;
  BatchMemory batch_memory_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  Schedule schedule_;
  Workspace parameter_memory_;
  std::vector<float*> parameters_;
  std::vector<float*> gradients_;
  std::vector<StateTensor> state_;  // parameters first, in order
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Reducer> reducer_;
  FoundGpu gpu_;
  DeviceChoice choice_;
  std::unique_ptr<Replica> replica_;  // null: model_, reducer_ and optimizer_ train, on the CPU
  int bound_layout_ = -1;
  std::unique_ptr<Checkpointing> checkpointing_;
  std::unique_ptr<std::FILE, CloseFile> losses_;

  std::string resumed_plan_;  // of the checkpoint, if it was written by as many ranks
  int64_t step_ = 0;          // completed
  int64_t total_steps_ = 0;
  int64_t samples_ = 0;
  UpdateState update_;    // of a replica
  int64_t finished_ = 0;  // steps whose loss is known; with a replica it lags behind
  int64_t saved_step_ = -1;
  int64_t agreed_step_ = -1;    // of a replica: the last whose result asked for a checkpoint
  uint32_t requests_done_ = 0;  // of checkpoint_requested
  bool checkpoint_agreed_ = false;
  bool stopped_ = false;
};

absl::Status Trainer::OpenDataAndModel() {
  ASSIGN_OR_RETURN(data_, OpenData(config_.data));
  ASSIGN_OR_RETURN(model_, MakeModel(config_, data_));
  optimizer_ = std::make_unique<Optimizer>(config_.optimizer, model_->parameters());
  sampler_ = std::make_unique<Sampler>(data_.train->size(), config_.global_batch, config_.seed);
  total_steps_ = config_.steps.has_value()
                     ? *config_.steps
                     : static_cast<int64_t>(std::ceil(
                           *config_.passes * static_cast<double>(sampler_->batches_per_pass())));
  schedule_ = config_.schedule;
  schedule_.total_steps = total_steps_;
  page_.total_steps.store(static_cast<uint64_t>(total_steps_));
  AllocateState();
  return absl::OkStatus();
}

void Trainer::AllocateState() {
  std::vector<int64_t> sizes;
  for (const ParameterSpec& spec : model_->parameters()) sizes.push_back(spec.size());
  parameters_ = parameter_memory_.Allocate(sizes);
  gradients_.assign(parameters_.size(), nullptr);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const ParameterSpec& spec = model_->parameters()[p];
    state_.push_back({spec.name, spec.shape, parameters_[p], spec.size()});
  }
  for (const OptimizerState& array : optimizer_->state()) {
    const ParameterSpec& spec = model_->parameters()[array.parameter];
    state_.push_back({array.name, spec.shape, array.data, spec.size()});
  }
}

// The same on all ranks, or they would wait for each other in different collectives.
absl::Status Trainer::ChooseWhereToTrain() {
  gpu_ = LookForGpu(session_.identity().local_rank);
  const int32_t mine = gpu_.number < 0 ? 0 : gpu_.sm;
  std::vector<int32_t> all(static_cast<size_t>(communicator_.size()));
  RETURN_IF_ERROR(communicator_.AllGather(&mine, all.data(), sizeof(mine)));
  const int64_t without = std::count(all.begin(), all.end(), 0);
  std::string unsupported;
  if (config_.model.kind != ModelConfig::Kind::kGpt) {
    unsupported = "models of kind mlp are trained on CPUs only";
  } else if (without > 0 && without < communicator_.size()) {
    unsupported =
        absl::StrCat(without, " of ", communicator_.size(),
                     " workers have no GPU of their own; start as many as there are GPUs");
  }
  if (mine > 0) gpu_.sm = std::max(*std::min_element(all.begin(), all.end()), 1);
  ASSIGN_OR_RETURN(choice_, ChooseDevice(config_.device, config_.precision, gpu_, unsupported));
  if (!choice_.reason.empty() && rank() == 0) session_.Note(choice_.reason);
  return absl::OkStatus();
}

absl::Status Trainer::StartReplica() {
  const int64_t share = (config_.global_batch + communicator_.size() - 1) / communicator_.size();
  ReplicaRequest request;
  request.gpu = gpu_;
  request.precision = choice_.precision;
  request.samples = config_.micro_batch > 0 ? std::min(config_.micro_batch, share) : share;
  request.ranks = communicator_.size();
  request.session = &session_;
  if (request.ranks > 1) {
    ASSIGN_OR_RETURN(request.bucket_plan, ChoosePlan());
  }
  absl::StatusOr<std::unique_ptr<Replica>> made =
      MakeReplica(config_, data_, model_->parameters(), request);
  if (!made.ok()) {
    absl::Status why = made.status();
    if (absl::IsResourceExhausted(why)) why.SetPayload(kGpuMemory, absl::Cord("1"));
    return why;
  }
  replica_ = *std::move(made);
  return replica_->Upload(state_, update_);
}

void Trainer::StartFresh() {
  model_->Bind(parameters_, gradients_);
  model_->Initialize(config_.seed);
  for (size_t t = parameters_.size(); t < state_.size(); ++t) {
    std::memset(state_[t].data, 0, static_cast<size_t>(state_[t].size) * sizeof(float));
  }
}

absl::Status Trainer::Resume() {
  if (config_.checkpoint_folder.empty()) {
    StartFresh();
    return absl::OkStatus();
  }
  checkpointing_ = std::make_unique<Checkpointing>(
      config_.checkpoint_folder, options_.decides_retention ? config_.checkpoint_keep : 0, session_,
      communicator_);
  RETURN_IF_ERROR(checkpointing_->Open());
  Progress progress;
  RecoveryOptions recovery;
  recovery.folder = config_.checkpoint_folder;
  if (options_.resume_from.has_value()) {
    recovery.fresh = options_.resume_from->empty();
    if (!recovery.fresh) {
      ASSIGN_OR_RETURN(recovery.chosen, StepOfPath(*options_.resume_from));
    }
  }
  recovery.load = [&](const FoundCheckpoint& found) -> absl::Status {
    ASSIGN_OR_RETURN(progress,
                     ParseProgress(found.manifest.state, config_.seed, data_.train->size()));
    return LoadTensors(found, state_);
  };
  recovery.rejected = [&](Step step, absl::string_view reason) {
    session_.CheckpointRejected(step, reason);
  };
  ASSIGN_OR_RETURN(const std::optional<FoundCheckpoint> found, Recover(communicator_, recovery));
  if (!found.has_value()) {
    StartFresh();
    return absl::OkStatus();
  }
  step_ = finished_ = saved_step_ = found->manifest.step.value;
  samples_ = progress.samples;
  update_ = progress.update;
  if (update_.loss_scale == 0) update_.updates = step_;
  sampler_ = std::make_unique<Sampler>(data_.train->size(), config_.global_batch, config_.seed,
                                       progress.position);
  if (found->manifest.world_size == communicator_.size()) resumed_plan_ = progress.bucket_plan;
  page_.step.store(static_cast<uint64_t>(step_));
  page_.samples.store(static_cast<uint64_t>(samples_));
  page_.resumed.store(static_cast<uint32_t>(step_) + 1);
  if (step_ >= total_steps_ && rank() == 0) {
    session_.Note(absl::StrCat("nothing is left to train: ", found->path, " is the state after ",
                               step_, " steps, and ", total_steps_,
                               " are asked for; ask for more, or give another checkpoint folder"));
  }
  return absl::OkStatus();
}

// The bucket plan to go on with, as JSON; empty: none yet.
absl::StatusOr<std::string> Trainer::ChoosePlan() const {
  return config_.plan_file.empty() ? resumed_plan_ : ReadPlanFile(config_.plan_file);
}

absl::Status Trainer::StartReducer() {
  std::vector<int64_t> sizes;
  for (const ParameterSpec& spec : model_->parameters()) sizes.push_back(spec.size());
  ReducerOptions options;
  options.sums = kSums;
  options.note = [this](absl::string_view reason) { session_.Note(reason); };
  ASSIGN_OR_RETURN(const std::string plan, ChoosePlan());
  if (!plan.empty()) {
    absl::StatusOr<BucketPlan> parsed = PlanFromJson(plan, static_cast<int>(sizes.size()));
    if (!parsed.ok()) {
      return absl::Status(
          parsed.status().code(),
          absl::StrCat("use the bucket plan of ",
                       config_.plan_file.empty() ? "the checkpoint" : config_.plan_file, ": ",
                       parsed.status().message()));
    }
    options.plan = *std::move(parsed);
  }
  ASSIGN_OR_RETURN(reducer_, Reducer::Create(&communicator_, std::move(sizes), std::move(options)));
  return absl::OkStatus();
}

absl::Status Trainer::OpenLossFile() {
  if (options_.loss_file.empty() || rank() != 0) return absl::OkStatus();
  losses_.reset(std::fopen(options_.loss_file.c_str(), "ae"));
  if (losses_ == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("open the loss file ", options_.loss_file));
  }
  return absl::OkStatus();
}

void Trainer::BindGradients() {
  for (size_t p = 0; p < gradients_.size(); ++p) {
    gradients_[p] = reducer_->gradient(static_cast<int>(p));
  }
  model_->Bind(parameters_, gradients_);
  bound_layout_ = reducer_->layout();
}

absl::Status Trainer::Loop() {
  while (step_ < total_steps_ && !stopped_) {
    RETURN_IF_ERROR(replica_ != nullptr ? TrainStepOnReplica() : TrainStep());
    const bool last = step_ == total_steps_ || stopped_;
    if (last || checkpoint_agreed_ || step_ % config_.checkpoint_every == 0) {
      RETURN_IF_ERROR(Save());
    }
  }
  if (replica_ != nullptr) RETURN_IF_ERROR(TakeResults(0));
  if (stopped_ && rank() == 0) {
    session_.Note(absl::StrCat("stopped after step ", step_, " of ", total_steps_));
  }
  return absl::OkStatus();
}

absl::Status Trainer::ComputeGradients(absl::Span<const int64_t> ids, double scale,
                                       double* loss_sum) {
  const size_t micro = config_.micro_batch > 0 ? static_cast<size_t>(config_.micro_batch)
                                               : std::max<size_t>(ids.size(), 1);
  RETURN_IF_ERROR(reducer_->BeginStep(static_cast<int>((ids.size() + micro - 1) / micro)));
  if (reducer_->layout() != bound_layout_) BindGradients();
  for (size_t begin = 0; begin < ids.size(); begin += micro) {
    SetPhase(WorkerPhase::kData);
    ASSIGN_OR_RETURN(const Batch batch,
                     data_.train->Read(ids.subspan(begin, micro), batch_memory_));
    SetPhase(WorkerPhase::kForward);
    bool in_backward = false;
    *loss_sum += model_->ForwardBackward(batch, static_cast<float>(scale),
                                         static_cast<uint64_t>(step_), [&](int parameter) {
                                           if (!std::exchange(in_backward, true)) {
                                             SetPhase(WorkerPhase::kBackward);
                                           }
                                           reducer_->MarkReady(parameter);
                                         });
    reducer_->FinishMicroBatch();
  }
  return absl::OkStatus();
}

absl::Status Trainer::TrainStep() {
  const int64_t samples = sampler_->batch_size();
  const double targets = static_cast<double>(samples * data_.train->targets_per_sample());
  const std::vector<int64_t> ids = sampler_->Share(rank(), communicator_.size());
  double loss_sum = 0;
  RETURN_IF_ERROR(ComputeGradients(ids, 1 / targets, &loss_sum));
  // Both requests are written to every worker's page at about the same time: what one rank has seen
  // holds for all, at this step.
  const absl::Span<float> sums = reducer_->sums();
  sums[kLossSum] = static_cast<float>(loss_sum);
  sums[kStopSum] = session_.StopRequested() ? 1.0f : 0.0f;
  sums[kCheckpointSum] = page_.checkpoint_requested.load() > requests_done_ ? 1.0f : 0.0f;
  SetPhase(WorkerPhase::kCollective);
  RETURN_IF_ERROR(reducer_->Wait());
  stopped_ = reducer_->sums()[kStopSum] > 0;
  checkpoint_agreed_ = reducer_->sums()[kCheckpointSum] > 0;
  // A rank that has not seen this request yet must not act on it a second time.
  if (checkpoint_agreed_) ++requests_done_;
  const double loss = static_cast<double>(reducer_->sums()[kLossSum]) / targets;
  if (!std::isfinite(loss)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "train: the loss of step ", step_ + 1, " is ", loss,
        "; training has diverged: lower optimizer.lr, lengthen the warm-up or set optimizer.clip"));
  }
  SetPhase(WorkerPhase::kOptimizer);
  RETURN_IF_ERROR(ApplyGradients());
  samples_ += samples;
  sampler_->Advance();
  ++step_;
  return FinishStep(step_, loss);
}

absl::Status Trainer::TrainStepOnReplica() {
  const int64_t samples = sampler_->batch_size();
  const std::vector<int64_t> all = sampler_->Share(rank(), communicator_.size());
  const absl::Span<const int64_t> ids = all;
  const size_t micro = config_.micro_batch > 0 ? static_cast<size_t>(config_.micro_batch)
                                               : std::max<size_t>(ids.size(), 1);
  const double targets = static_cast<double>(samples * data_.train->targets_per_sample());
  checkpoint_agreed_ = false;
  RETURN_IF_ERROR(replica_->BeginStep(static_cast<int>((ids.size() + micro - 1) / micro)));
  for (size_t begin = 0; begin < ids.size(); begin += micro) {
    SetPhase(WorkerPhase::kData);
    ASSIGN_OR_RETURN(const Batch batch,
                     data_.train->Read(ids.subspan(begin, micro), batch_memory_));
    SetPhase(WorkerPhase::kForward);
    RETURN_IF_ERROR(
        replica_->Accumulate(batch, static_cast<float>(1 / targets), static_cast<uint64_t>(step_)));
  }
  RETURN_IF_ERROR(TakeResults(1));
  SetPhase(WorkerPhase::kOptimizer);
  RETURN_IF_ERROR(replica_->Update(
      LearningRate(schedule_, step_),
      {session_.StopRequested(), page_.checkpoint_requested.load() > requests_done_}));
  samples_ += samples;
  sampler_->Advance();
  ++step_;
  return absl::OkStatus();
}

// Of all steps but the last `leave`, which may still be on their way.
absl::Status Trainer::TakeResults(int leave) {
  const double targets =
      static_cast<double>(sampler_->batch_size() * data_.train->targets_per_sample());
  while (replica_->results_waiting() > leave) {
    ASSIGN_OR_RETURN(const StepResult result, replica_->TakeResult());
    ++finished_;
    update_ = result.update;
    RETURN_IF_ERROR(JudgeReplica(result, finished_));
    RETURN_IF_ERROR(FinishStep(finished_, result.loss_sum / targets));
    stopped_ = stopped_ || result.requests.stop;
    // The step after one that agreed was enqueued before that was known, and asks again.
    if (!result.requests.checkpoint || finished_ == agreed_step_ + 1) continue;
    agreed_step_ = finished_;
    checkpoint_agreed_ = true;
    ++requests_done_;
  }
  return absl::OkStatus();
}

// A float16 run may skip steps while it looks for its loss scale; no other may.
absl::Status Trainer::JudgeReplica(const StepResult& result, int64_t step) {
  if (result.bad_tensor < 0 && std::isfinite(result.loss_sum)) return absl::OkStatus();
  const std::string where =
      result.bad_tensor >= 0 && result.bad_tensor < static_cast<int>(parameters_.size())
          ? absl::StrCat(" (first in ", state_[static_cast<size_t>(result.bad_tensor)].name, ")")
          : "";
  const bool scaled = result.update.loss_scale > 0;
  if (scaled && result.skipped_at_floor < kMostSkippedAtFloor) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "train: the gradients of step ", step, " are not finite", where, ", and the loss is ",
      result.loss_sum /
          static_cast<double>(sampler_->batch_size() * data_.train->targets_per_sample()),
      scaled ? absl::StrCat(", nor were those of ", result.skipped_at_floor,
                            " steps with the smallest loss scale")
             : "",
      "; training has diverged: lower optimizer.lr, lengthen the warm-up or set optimizer.clip"));
}

// Brings the state of the replica after step_ into state_.
absl::Status Trainer::FetchState() {
  if (replica_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(TakeResults(0));
  return replica_->Download(state_);
}

absl::Status Trainer::ApplyGradients() {
  double scale = 1;
  if (config_.clip > 0) {
    std::vector<absl::Span<float>> tensors;
    for (size_t p = 0; p < gradients_.size(); ++p) {
      tensors.push_back(absl::MakeSpan(gradients_[p], static_cast<size_t>(state_[p].size)));
    }
    const double norm = GlobalNorm(tensors);
    if (!std::isfinite(norm)) {
      return absl::FailedPreconditionError(
          absl::StrCat("train: the gradients of step ", step_ + 1, " have the norm ", norm,
                       "; training has diverged: lower optimizer.lr or lengthen the warm-up"));
    }
    scale = std::min(1.0, config_.clip / (norm + 1e-6));
  }
  optimizer_->Step(parameters_, gradients_, LearningRate(schedule_, step_), scale, step_);
  return absl::OkStatus();
}

absl::Status Trainer::FinishStep(int64_t step, double loss) {
  page_.loss.store(loss, std::memory_order_relaxed);
  page_.samples.store(static_cast<uint64_t>(samples_), std::memory_order_relaxed);
  const SamplerPosition& position = sampler_->position();
  page_.data_epoch.store(
      static_cast<double>(position.pass) +
          static_cast<double>(position.offset) / static_cast<double>(data_.train->size()),
      std::memory_order_relaxed);
  page_.step.store(static_cast<uint64_t>(step));
  if (page_.first_step_ns.load(std::memory_order_relaxed) == 0) {
    page_.first_step_ns.store(Now().ns);
  }
  if (losses_ != nullptr) {
    std::fprintf(losses_.get(), "%lld,%.17g\n", static_cast<long long>(step), loss);
    if (std::fflush(losses_.get()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("write ", options_.loss_file));
    }
  }
  if (replica_ == nullptr && config_.drift_check_every > 0 &&
      step_ % config_.drift_check_every == 0)
    return CheckDrift();
  return absl::OkStatus();
}

absl::Status Trainer::CheckDrift() {
  SetPhase(WorkerPhase::kCollective);
  std::vector<NamedTensor> tensors;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    tensors.push_back(
        {state_[p].name, absl::MakeConstSpan(parameters_[p], static_cast<size_t>(state_[p].size))});
  }
  return CheckReplicas(communicator_, tensors, Step(step_));
}

Progress Trainer::CurrentProgress() const {
  Progress progress;
  progress.samples = samples_;
  progress.position = sampler_->position();
  progress.seed = config_.seed;
  progress.data_samples = data_.train->size();
  progress.bucket_plan =
      replica_ != nullptr ? replica_->bucket_plan() : PlanToJson(reducer_->plan());
  if (replica_ != nullptr) progress.update = update_;
  progress.config = config_.text;
  return progress;
}

absl::Status Trainer::Save() {
  if (checkpointing_ == nullptr || saved_step_ == step_) return absl::OkStatus();
  RETURN_IF_ERROR(FetchState());
  // Each rank writes other tensors, so a checkpoint is only one state if all ranks hold the same.
  if (config_.drift_check_every > 0 && step_ % config_.drift_check_every != 0) {
    RETURN_IF_ERROR(CheckDrift());
  }
  SetPhase(WorkerPhase::kCheckpoint);
  saved_step_ = step_;
  return checkpointing_->Save(Step(step_), state_, CurrentProgress());
}

// A run whose result is lost has failed, however far it came.
absl::Status Trainer::CheckSaved() {
  if (checkpointing_ == nullptr || checkpointing_->unsaved().ok()) return absl::OkStatus();
  const absl::Status& why = checkpointing_->unsaved();
  return absl::Status(why.code(),
                      absl::StrCat("train: the state after the last step, ", step_,
                                   ", could not be saved and is lost: ", why.message()));
}

absl::Status Trainer::Evaluate() {
  RETURN_IF_ERROR(FetchState());
  SetPhase(WorkerPhase::kEvaluate);
  if (bound_layout_ < 0) model_->Bind(parameters_, gradients_);  // no step was left to train
  const auto evaluate = [this](const Batch& batch) -> absl::StatusOr<EvaluateResult> {
    if (replica_ != nullptr) return replica_->Evaluate(batch);
    return model_->Evaluate(batch);
  };
  ASSIGN_OR_RETURN(
      const EvaluateResult total,
      EvaluateTogether(evaluate, *data_.evaluation, config_.micro_batch, communicator_));
  if (rank() != 0) return absl::OkStatus();
  ReportEvaluation(session_, data_, total);
  Digest digest;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    digest.Add(parameters_[p], static_cast<size_t>(state_[p].size) * sizeof(float));
  }
  session_.Note(absl::StrCat("parameters ", digest.Text()));
  return absl::OkStatus();
}

}  // namespace

absl::Status Train(const TrainConfig& config, const TrainerOptions& options, Session& session,
                   Communicator& communicator) {
  return Trainer(config, options, session, communicator).Run();
}

}  // namespace trainctl

#include "runtime/worker/reducer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/worker/link_probe.h"

namespace trainctl {
namespace {

constexpr size_t kAlignBytes = 64;
constexpr size_t kAlignElements = kAlignBytes / sizeof(float);

size_t RoundUp(size_t elements) {
  return (elements + kAlignElements - 1) / kAlignElements * kAlignElements;
}

struct FreeMemory {
  void operator()(float* memory) const { std::free(memory); }
};

// All buckets in one piece of memory. Behind the gradients of the last bucket lie one float for
// each parameter (how many ranks used it) and the caller's sums, so that they need no message of
// their own.
struct Layout {
  struct Bucket {
    float* data = nullptr;
    size_t elements = 0;
    int parameters = 0;
  };
  std::unique_ptr<float, FreeMemory> memory;
  size_t elements = 0;
  std::vector<Bucket> buckets;
  std::vector<float*> gradients;  // by parameter
  std::vector<int> bucket_of;     // by parameter
  absl::Span<float> use_counts;
  absl::Span<float> sums;
};

Layout MakeLayout(const std::vector<int64_t>& sizes, const BucketPlan& plan, size_t sums) {
  Layout layout;
  size_t total = RoundUp(sizes.size()) + RoundUp(sums);
  for (const int64_t size : sizes) total += RoundUp(static_cast<size_t>(size));
  layout.elements = total;
  layout.memory.reset(static_cast<float*>(
      std::aligned_alloc(kAlignBytes, std::max(total, kAlignElements) * sizeof(float))));
  CHECK(layout.memory != nullptr);
  layout.gradients.resize(sizes.size());
  layout.bucket_of.resize(sizes.size());
  float* next = layout.memory.get();
  for (const std::vector<int>& parameters : plan.buckets) {
    Layout::Bucket bucket;
    bucket.data = next;
    bucket.parameters = static_cast<int>(parameters.size());
    for (const int p : parameters) {
      layout.gradients[static_cast<size_t>(p)] = next;
      layout.bucket_of[static_cast<size_t>(p)] = static_cast<int>(layout.buckets.size());
      next += RoundUp(static_cast<size_t>(sizes[static_cast<size_t>(p)]));
    }
    bucket.elements = static_cast<size_t>(next - bucket.data);
    layout.buckets.push_back(bucket);
  }
  if (layout.buckets.empty()) layout.buckets.push_back({next, 0, 0});
  layout.use_counts = absl::MakeSpan(next, sizes.size());
  layout.sums = absl::MakeSpan(next + sizes.size(), sums);
  layout.buckets.back().elements += sizes.size() + sums;
  return layout;
}

class BucketReducer : public Reducer {
 public:
  BucketReducer(Communicator* communicator, std::vector<int64_t> sizes, ReducerOptions options)
      : communicator_(communicator), sizes_(std::move(sizes)), options_(std::move(options)) {}

  ~BucketReducer() override {
    {
      MutexLock lock(&mutex_);
      quit_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start() {
    if (options_.plan.has_value()) {
      // A plan's text is checked where it is read; here it must also be for this many parameters.
      ASSIGN_OR_RETURN(plan_, PlanFromJson(PlanToJson(*options_.plan), parameters()));
      plan_.reason = options_.plan->reason;
    } else {
      ASSIGN_OR_RETURN(const LinkMeasurement link, ProbeLink(*communicator_));
      plan_ = MakePlan({}, link, /*step_seconds=*/0);
    }
    layout_ = MakeLayout(sizes_, plan_, static_cast<size_t>(options_.sums));
    marked_in_.resize(sizes_.size());
    if (plan_.final) TellPlan();
    if (communicator_->size() > 1) thread_ = std::thread([this] { Communicate(); });
    return absl::OkStatus();
  }

  float* gradient(int parameter) override {
    return layout_.gradients[static_cast<size_t>(parameter)];
  }
  int layout() const override { return layout_number_; }
  absl::Span<float> sums() override { return layout_.sums; }
  bool used(int parameter) const override {
    return layout_.use_counts[static_cast<size_t>(parameter)] > 0;
  }
  bool all_used() const override { return all_used_; }
  const BucketPlan& plan() const override { return plan_; }

  absl::Status BeginStep(int micro_batches) override {
    if (in_step_) {
      return absl::FailedPreconditionError("begin step: the step before it was not waited for");
    }
    {
      MutexLock lock(&mutex_);
      RETURN_IF_ERROR(failure_);
      next_ = launchable_ = 0;
    }
    if (next_plan_.has_value()) {
      plan_ = *std::move(next_plan_);
      next_plan_.reset();
      layout_ = MakeLayout(sizes_, plan_, static_cast<size_t>(options_.sums));
      ++layout_number_;
    }
    std::memset(layout_.memory.get(), 0, layout_.elements * sizeof(float));
    micro_batches_ = micro_batches;
    micro_batch_ = 1;
    std::fill(marked_in_.begin(), marked_in_.end(), 0);
    ready_order_.clear();
    missing_.clear();
    for (const Layout::Bucket& bucket : layout_.buckets) missing_.push_back(bucket.parameters);
    full_ = 0;
    step_start_ = Now();
    in_step_ = true;
    return absl::OkStatus();
  }

  void MarkReady(int parameter) override {
    CHECK(in_step_ && micro_batch_ <= micro_batches_);
    const size_t p = static_cast<size_t>(parameter);
    if (marked_in_[p] == micro_batch_) return;
    marked_in_[p] = micro_batch_;
    layout_.use_counts[p] = 1;
    if (micro_batch_ < micro_batches_) return;
    if (!plan_.final) ready_order_.push_back(parameter);
    --missing_[static_cast<size_t>(layout_.bucket_of[p])];
    // The last bucket stays for Wait: it carries the sums, which are not known yet.
    const size_t before = full_;
    while (full_ + 1 < missing_.size() && missing_[full_] == 0) ++full_;
    if (full_ == before || communicator_->size() == 1) return;
    MutexLock lock(&mutex_);
    launchable_ = full_;
  }

  void FinishMicroBatch() override {
    CHECK(in_step_ && micro_batch_ <= micro_batches_);
    ++micro_batch_;
  }

  absl::Status Wait() override {
    if (!in_step_) return absl::FailedPreconditionError("wait for gradients: no step was begun");
    in_step_ = false;
    const double step_seconds = ToSeconds(Now() - step_start_);
    {
      MutexLock lock(&mutex_);
      launchable_ = layout_.buckets.size();
      // Reduces here what the other thread has not begun: waking it would cost more.
      ReduceLaunchable();
      mutex_.Await(absl::Condition(this, &BucketReducer::Idle));
      RETURN_IF_ERROR(failure_);
    }
    all_used_ = std::all_of(layout_.use_counts.begin(), layout_.use_counts.end(),
                            [](float count) { return count > 0; });
    if (plan_.final) return absl::OkStatus();
    absl::Status agreed = AgreeOnPlan(step_seconds);
    MutexLock lock(&mutex_);
    failure_.Update(agreed);
    return failure_;
  }

 private:
  int parameters() const { return static_cast<int>(sizes_.size()); }

  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !reducing_ && (next_ == launchable_ || !failure_.ok());
  }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return quit_ || (!reducing_ && next_ < launchable_ && failure_.ok());
  }

  void Communicate() {
    MutexLock lock(&mutex_);
    for (;;) {
      mutex_.Await(absl::Condition(this, &BucketReducer::HasWork));
      if (quit_) return;
      ReduceLaunchable();
    }
  }

  // One thread at a time, bucket by bucket. The lock is free while a bucket travels.
  void ReduceLaunchable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!reducing_ && next_ < launchable_ && failure_.ok()) {
      reducing_ = true;
      const Layout::Bucket bucket = layout_.buckets[next_];
      const int number = static_cast<int>(next_);
      mutex_.Unlock();
      absl::Status reduced = communicator_->AllReduceSum(bucket.data, bucket.elements, number);
      mutex_.Lock();
      reducing_ = false;
      ++next_;
      failure_.Update(reduced);
    }
  }

  // `order`: parameters in the order in which they were ready; the others follow, in reverse
  // registration order.
  BucketPlan MakePlan(std::vector<int> order, LinkMeasurement link, double step_seconds) const {
    std::vector<bool> present(sizes_.size());
    for (const int p : order) present[static_cast<size_t>(p)] = true;
    for (int p = parameters() - 1; p >= 0; --p) {
      if (!present[static_cast<size_t>(p)]) order.push_back(p);
    }
    std::vector<int64_t> bytes;
    for (const int64_t size : sizes_) {
      bytes.push_back(size * static_cast<int64_t>(sizeof(float)));
    }
    return PlanBuckets(bytes, order, communicator_->size(), link, step_seconds);
  }

  // Rank 0 decides from what it saw in this step and tells the others; no decision (an empty text)
  // if it had no samples.
  absl::Status AgreeOnPlan(double step_seconds) {
    std::string text;
    if (communicator_->rank() == 0 && !ready_order_.empty()) {
      BucketPlan plan = MakePlan(ready_order_, plan_.link, step_seconds);
      plan.final = true;
      text = PlanToJson(plan);
    }
    uint64_t size = text.size();
    RETURN_IF_ERROR(communicator_->Broadcast(&size, sizeof(size), 0));
    if (size == 0) return absl::OkStatus();
    text.resize(size);
    RETURN_IF_ERROR(communicator_->Broadcast(text.data(), size, 0));
    ASSIGN_OR_RETURN(BucketPlan plan, PlanFromJson(text, parameters()));
    if (plan.buckets == plan_.buckets) {
      plan_ = std::move(plan);
      TellPlan();
      return absl::OkStatus();
    }
    next_plan_ = std::move(plan);
    if (communicator_->rank() == 0 && options_.note) options_.note(next_plan_->reason);
    return absl::OkStatus();
  }

  void TellPlan() const {
    if (communicator_->rank() == 0 && options_.note) options_.note(plan_.reason);
  }

  Communicator* const communicator_;
  const std::vector<int64_t> sizes_;
  const ReducerOptions options_;
  BucketPlan plan_;
  std::optional<BucketPlan> next_plan_;  // from the next step on
  Layout layout_;
  int layout_number_ = 0;

  bool in_step_ = false;
  bool all_used_ = true;
  int micro_batches_ = 0;
  int micro_batch_ = 1;         // the current one, from 1
  std::vector<int> marked_in_;  // by parameter: the micro-batch of its newest mark, 0 none
  std::vector<int> missing_;    // by bucket: parameters not yet marked in the last micro-batch
  size_t full_ = 0;             // buckets before this one are full
  std::vector<int> ready_order_;
  Instant step_start_;

  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;        // bucket to be reduced next
  size_t launchable_ ABSL_GUARDED_BY(mutex_) = 0;  // buckets before this one may be reduced
  bool reducing_ ABSL_GUARDED_BY(mutex_) = false;
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reducer>> Reducer::Create(Communicator* communicator,
                                                         std::vector<int64_t> sizes,
                                                         ReducerOptions options) {
  auto reducer =
      std::make_unique<BucketReducer>(communicator, std::move(sizes), std::move(options));
  RETURN_IF_ERROR(reducer->Start());
  return reducer;
}

}  // namespace trainctl

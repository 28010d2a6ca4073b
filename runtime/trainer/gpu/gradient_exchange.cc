#include "runtime/trainer/gpu/gradient_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/device/memory.h"

namespace trainctl {
namespace {

constexpr int kProbes = 10;
constexpr int64_t kProbeElements = 8 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<GradientExchange>> GradientExchange::Create(
    NcclCommunicator* communicator, ArenaLayout layout, float* gradients, const std::string& plan) {
  auto exchange = std::unique_ptr<GradientExchange>(
      new GradientExchange(communicator, std::move(layout), gradients));
  ASSIGN_OR_RETURN(exchange->stream_, Stream::Create(Stream::Priority::kHigh));
  ASSIGN_OR_RETURN(exchange->sent_, Event::Create());
  if (plan.empty()) {
    ASSIGN_OR_RETURN(exchange->plan_, exchange->MakePlan());
  } else {
    ASSIGN_OR_RETURN(exchange->plan_,
                     PlanFromJson(plan, static_cast<int>(exchange->layout_.slots.size())));
  }
  RETURN_IF_ERROR(exchange->MakeBuckets());
  return exchange;
}

// All ranks get the same: the sum of what each measured.
absl::StatusOr<LinkMeasurement> GradientExchange::MeasureLink() {
  const auto time = [&](int64_t count) -> absl::StatusOr<double> {
    std::vector<double> seconds;
    for (int i = 0; i < kProbes; ++i) {
      const Instant begin = Now();
      RETURN_IF_ERROR(communicator_->AllReduceSum(gradients_, static_cast<size_t>(count)));
      seconds.push_back(ToSeconds(Now() - begin));
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[kProbes / 2];
  };
  const int64_t large = std::min(kProbeElements, layout_.total);
  ASSIGN_OR_RETURN(double latency, time(1));
  ASSIGN_OR_RETURN(double transfer, time(large));
  const int ranks = communicator_->size();
  double mine[2] = {latency, transfer};
  std::vector<double> all(2 * static_cast<size_t>(ranks));
  // Through the first floats of the gradients, which become zero again.
  const size_t bytes = sizeof(mine);
  char* const out = reinterpret_cast<char*>(gradients_) + bytes;
  RETURN_IF_ERROR(Copy("a measurement", gradients_, mine, bytes, stream_.get()));
  RETURN_IF_ERROR(stream_.Wait());
  RETURN_IF_ERROR(communicator_->AllGather(gradients_, out, bytes));
  RETURN_IF_ERROR(
      Copy("measurements", all.data(), out, all.size() * sizeof(double), stream_.get()));
  RETURN_IF_ERROR(
      Fill("the gradients", gradients_, 0, bytes * (all.size() / 2 + 1), stream_.get()));
  RETURN_IF_ERROR(stream_.Wait());
  LinkMeasurement link;
  for (int rank = 0; rank < ranks; ++rank) {
    latency = std::max(latency, all[2 * static_cast<size_t>(rank)]);
    transfer = std::max(transfer, all[2 * static_cast<size_t>(rank) + 1]);
  }
  const double sent = 2.0 * (ranks - 1) / ranks * static_cast<double>(large) * sizeof(float);
  link.latency_seconds = latency;
  link.bytes_per_second = sent / std::max(transfer - latency, 1e-6);
  return link;
}

absl::StatusOr<BucketPlan> GradientExchange::MakePlan() {
  const int parameters = static_cast<int>(layout_.slots.size());
  ASSIGN_OR_RETURN(const LinkMeasurement link, MeasureLink());
  std::vector<int64_t> bytes;
  std::vector<int> order;
  for (int p = 0; p < parameters; ++p) {
    bytes.push_back(layout_.slots[static_cast<size_t>(p)].padded *
                    static_cast<int64_t>(sizeof(float)));
    order.push_back(parameters - 1 - p);  // backward ends where the arena begins
  }
  return PlanBuckets(bytes, order, communicator_->size(), link, 0);
}

absl::Status GradientExchange::MakeBuckets() {
  bucket_of_.resize(layout_.slots.size());
  for (const std::vector<int>& members : plan_.buckets) {
    Bucket bucket;
    const auto [first, last] = std::minmax_element(members.begin(), members.end());
    const ArenaSlot& end = layout_.slots[static_cast<size_t>(*last)];
    bucket.begin = layout_.slots[static_cast<size_t>(*first)].offset;
    bucket.end = end.offset + end.padded;
    bucket.parameters = static_cast<int>(members.size());
    if (*last - *first + 1 != bucket.parameters) {
      return absl::InvalidArgumentError(absl::StrCat(
          "use a bucket plan on GPUs: bucket ", buckets_.size(),
          " holds parameters that do not follow each other; leave plan_in out, or give the plan of "
          "a run on GPUs"));
    }
    ASSIGN_OR_RETURN(bucket.ready, Event::Create());
    for (int p : members) bucket_of_[static_cast<size_t>(p)] = static_cast<int>(buckets_.size());
    buckets_.push_back(std::move(bucket));
  }
  return absl::OkStatus();
}

void GradientExchange::BeginMicroBatch(bool last) {
  last_ = last;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
}

absl::Status GradientExchange::SendNext(const Stream& stream) {
  Bucket& bucket = buckets_[next_];
  RETURN_IF_ERROR(bucket.ready.Record(stream.get()));
  RETURN_IF_ERROR(stream_.WaitFor(bucket.ready));
  return communicator_->EnqueueAllReduce(
      gradients_ + bucket.begin, static_cast<size_t>(bucket.end - bucket.begin),
      ElementType::kFloat32, stream_.get(), static_cast<int>(next_++));
}

absl::Status GradientExchange::MarkReady(int parameter, const Stream& stream) {
  if (!last_) return absl::OkStatus();
  --buckets_[static_cast<size_t>(bucket_of_[static_cast<size_t>(parameter)])].missing;
  // In the same order on every rank.
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) {
    RETURN_IF_ERROR(SendNext(stream));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::Finish(double* values, size_t count, const Stream& stream) {
  while (next_ < buckets_.size()) RETURN_IF_ERROR(SendNext(stream));
  RETURN_IF_ERROR(sent_.Record(stream.get()));
  RETURN_IF_ERROR(stream_.WaitFor(sent_));
  RETURN_IF_ERROR(
      communicator_->EnqueueAllReduce(values, count, ElementType::kFloat64, stream_.get()));
  RETURN_IF_ERROR(sent_.Record(stream_.get()));
  return stream.WaitFor(sent_);
}

}  // namespace trainctl

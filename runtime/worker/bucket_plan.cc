#include "runtime/worker/bucket_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

constexpr int kPlanVersion = 1;
constexpr double kLatenciesPerBucket = 10;
constexpr double kExposedShareOfStep = 0.02;
constexpr double kLeastCap = 64 << 10;
constexpr double kGreatestCap = 256 << 20;

std::string Size(int64_t bytes) {
  if (bytes >= 10 << 20) return absl::StrCat(bytes >> 20, " MiB");
  return absl::StrCat((bytes + 1023) >> 10, " KiB");
}

int64_t Total(const std::vector<int64_t>& bytes, const std::vector<int>& parameters) {
  int64_t sum = 0;
  for (const int p : parameters) sum += bytes[static_cast<size_t>(p)];
  return sum;
}

absl::Status NotAPlan(absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("read bucket plan: ", found, "; leave it out to measure again"));
}

absl::StatusOr<double> Number(const nlohmann::json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) {
    return NotAPlan(absl::StrCat("\"", name, "\" is missing or not a number"));
  }
  const double value = found->get<double>();
  if (!(value >= 0 && value < 1e15)) {
    return NotAPlan(absl::StrCat("\"", name, "\" is ", value));
  }
  return value;
}

absl::Status ReadBuckets(const nlohmann::json& json, int parameters, BucketPlan* plan) {
  const auto buckets = json.find("buckets");
  if (buckets == json.end() || !buckets->is_array()) return NotAPlan("\"buckets\" is no list");
  std::vector<bool> seen(static_cast<size_t>(parameters));
  int count = 0;
  for (const nlohmann::json& bucket : *buckets) {
    if (!bucket.is_array() || bucket.empty()) return NotAPlan("a bucket is empty or no list");
    std::vector<int>& out = plan->buckets.emplace_back();
    for (const nlohmann::json& item : bucket) {
      if (!item.is_number_unsigned() || item.get<uint64_t>() >= seen.size()) {
        return NotAPlan(absl::StrCat("a bucket holds ", JsonText(item), " but the model has ",
                                     parameters, " parameters"));
      }
      const size_t p = item.get<size_t>();
      if (seen[p]) return NotAPlan(absl::StrCat("parameter ", p, " is in it twice"));
      seen[p] = true;
      ++count;
      out.push_back(static_cast<int>(p));
    }
  }
  if (count != parameters) {
    return NotAPlan(
        absl::StrCat("it holds ", count, " of the model's ", parameters, " parameters"));
  }
  return absl::OkStatus();
}

}  // namespace

BucketPlan PlanBuckets(const std::vector<int64_t>& bytes, const std::vector<int>& order,
                       int world_size, LinkMeasurement link, double step_seconds) {
  BucketPlan plan;
  plan.link = link;
  plan.step_seconds = step_seconds;
  const int64_t total = Total(bytes, order);
  if (world_size == 1) {
    plan.cap_bytes = plan.last_cap_bytes = total;
    if (!order.empty()) plan.buckets.push_back(order);
    plan.reason = "one bucket: there is only one worker";
    return plan;
  }
  // Bytes of a bucket that are reduced in one second: each rank sends 2 (n - 1) / n of them.
  const double n = world_size;
  const double rate = link.bytes_per_second * n / (2 * (n - 1));
  const double latency_bytes = link.latency_seconds * rate;
  const double cap = std::clamp(kLatenciesPerBucket * latency_bytes, kLeastCap, kGreatestCap);
  const double last =
      std::min(cap, std::max(latency_bytes, kExposedShareOfStep * step_seconds * rate));
  plan.cap_bytes = static_cast<int64_t>(cap);
  plan.last_cap_bytes = static_cast<int64_t>(last);

  // The last bucket takes the tensors that are ready last, one at least.
  size_t tail = order.size();
  for (int64_t size = 0; tail > 0; --tail) {
    size += bytes[static_cast<size_t>(order[tail - 1])];
    if (tail < order.size() && size > plan.last_cap_bytes) break;
  }
  int64_t filled = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t size = bytes[static_cast<size_t>(order[i])];
    // What takes less time than the latency of a message of its own is not worth one.
    const bool small = static_cast<double>(filled) < latency_bytes;
    const bool fits = i < tail ? small || filled + size <= plan.cap_bytes : small || i > tail;
    if (i == 0 || !fits) {
      plan.buckets.emplace_back();
      filled = 0;
    }
    plan.buckets.back().push_back(order[i]);
    filled += size;
  }
  plan.reason = absl::StrFormat(
      "%d gradient bucket%s of at most %s (ten times the latency of %.0f us at %.2f GB/s), the "
      "last "
      "of %s because nothing hides it",
      plan.buckets.size(), plan.buckets.size() == 1 ? "" : "s", Size(plan.cap_bytes),
      link.latency_seconds * 1e6, link.bytes_per_second * 1e-9,
      Size(plan.buckets.empty() ? 0 : Total(bytes, plan.buckets.back())));
  return plan;
}

std::string PlanToJson(const BucketPlan& plan) {
  const nlohmann::json json = {{"version", kPlanVersion},
                               {"latency_seconds", plan.link.latency_seconds},
                               {"bytes_per_second", plan.link.bytes_per_second},
                               {"step_seconds", plan.step_seconds},
                               {"cap_bytes", plan.cap_bytes},
                               {"last_cap_bytes", plan.last_cap_bytes},
                               {"final", plan.final},
                               {"buckets", plan.buckets},
                               {"reason", plan.reason}};
  return JsonText(json);
}

absl::StatusOr<BucketPlan> PlanFromJson(absl::string_view text, int parameters) {
  const nlohmann::json json = ParseJson(text);
  if (!json.is_object()) return NotAPlan("it is no JSON object");
  ASSIGN_OR_RETURN(const double version, Number(json, "version"));
  if (version != kPlanVersion) {
    return NotAPlan(absl::StrCat("its version is ", version, ", known is ", kPlanVersion));
  }
  BucketPlan plan;
  ASSIGN_OR_RETURN(plan.link.latency_seconds, Number(json, "latency_seconds"));
  ASSIGN_OR_RETURN(plan.link.bytes_per_second, Number(json, "bytes_per_second"));
  ASSIGN_OR_RETURN(plan.step_seconds, Number(json, "step_seconds"));
  ASSIGN_OR_RETURN(const double cap, Number(json, "cap_bytes"));
  ASSIGN_OR_RETURN(const double last_cap, Number(json, "last_cap_bytes"));
  plan.cap_bytes = static_cast<int64_t>(cap);
  plan.last_cap_bytes = static_cast<int64_t>(last_cap);
  const auto final = json.find("final");
  if (final == json.end() || !final->is_boolean()) return NotAPlan("\"final\" is no boolean");
  plan.final = final->get<bool>();
  const auto reason = json.find("reason");
  if (reason == json.end() || !reason->is_string()) return NotAPlan("\"reason\" is no text");
  plan.reason = reason->get<std::string>();
  RETURN_IF_ERROR(ReadBuckets(json, parameters, &plan));
  return plan;
}

}  // namespace trainctl

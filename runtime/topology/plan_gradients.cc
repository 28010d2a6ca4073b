#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/topology/plan_parts.h"

namespace trainctl {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr double kFast = 100;  // GB/s from which halving the bytes gains little

double LatencySeconds(Transport transport) {
  switch (transport) {
    case Transport::kNvSwitch:
    case Transport::kNvlink:
      return 17e-6;
    case Transport::kTcp:
    case Transport::kCpu:
      return 100e-6;
    default:
      return 30e-6;
  }
}

int OldestCapability(const std::vector<Topology>& nodes) {
  int oldest = 0;
  for (const Topology& node : nodes) {
    for (const Unit& unit : UnitsOf(node)) {
      oldest = oldest == 0 ? unit.gpu->sm : std::min(oldest, unit.gpu->sm);
    }
  }
  return oldest;
}

}  // namespace

GradientPlan PlanGradients(const PlanRequest& request, const TransportChoice& within,
                           const TransportChoice& between) {
  GradientPlan plan;
  // The slower of the two decides; a part that exchanges nothing does not.
  TransportChoice slow = within;
  if (between.transport != Transport::kNone &&
      (within.transport == Transport::kNone ||
       between.gigabytes_per_second < within.gigabytes_per_second)) {
    slow = between;
  }
  const int oldest = OldestCapability(request.nodes);
  plan.precision = "fp32";
  if (within.transport == Transport::kCpu) {
    plan.precision_reason = "CPUs gain nothing from less";
  } else if (oldest < 80) {
    plan.precision_reason = oldest == 0 ? "whether every GPU has bf16 is not known"
                                        : "not every GPU has bf16, and fp16 overflows";
  } else if (slow.transport == Transport::kNone) {
    plan.precision_reason = "nothing is sent";
  } else if (slow.gigabytes_per_second >= kFast) {
    plan.precision_reason =
        absl::StrFormat("%s is fast enough (%.0f GB/s) that half the bytes would not show",
                        WordOf(slow.transport), slow.gigabytes_per_second);
  } else {
    plan.precision = "bf16";
    plan.precision_reason = absl::StrCat("every GPU has bf16, and ", WordOf(slow.transport),
                                         " is slow enough that half the bytes are half the time");
  }
  if (slow.transport == Transport::kNone) {
    plan.bucket_reason = "one worker sends nothing";
    return plan;
  }
  if (!(slow.gigabytes_per_second > 0)) {
    plan.bucket_bytes = 25 * kMiB;
    plan.bucket_reason = "a guess until latency and bandwidth are measured at the start";
    return plan;
  }
  const double latency = LatencySeconds(slow.transport);
  const double bytes = 10 * latency * slow.gigabytes_per_second * 1e9;
  plan.bucket_bytes = std::clamp<int64_t>(std::llround(bytes / kMiB), 1, 256) * kMiB;
  plan.bucket_reason = absl::StrFormat(
      "ten times the latency (%.0f us) at %.0f GB/s by %s, both as expected; "
      "measured at the start",
      latency * 1e6, slow.gigabytes_per_second, WordOf(slow.transport));
  return plan;
}

}  // namespace trainctl

#include "runtime/worker/link_probe.h"

#include <algorithm>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr size_t kLargeElements = size_t{1} << 18;  // 1 MiB
constexpr int kSmallRepeats = 21;
constexpr int kLargeRepeats = 5;

// The median, so that one interruption does not decide.
absl::StatusOr<double> Measure(Communicator& communicator, std::vector<float>& data, int repeats) {
  std::vector<double> taken;
  for (int i = 0; i < repeats; ++i) {
    const Instant start = Now();
    RETURN_IF_ERROR(communicator.AllReduceSum(data.data(), data.size()));
    taken.push_back(ToSeconds(Now() - start));
  }
  std::nth_element(taken.begin(), taken.begin() + repeats / 2, taken.end());
  return taken[static_cast<size_t>(repeats / 2)];
}

}  // namespace

absl::StatusOr<LinkMeasurement> ProbeLink(Communicator& communicator) {
  LinkMeasurement link;
  if (communicator.size() == 1) return link;
  std::vector<float> small(16), large(kLargeElements);
  RETURN_IF_ERROR(Measure(communicator, small, 1).status());  // the first finds cold caches
  ASSIGN_OR_RETURN(link.latency_seconds, Measure(communicator, small, kSmallRepeats));
  ASSIGN_OR_RETURN(const double seconds, Measure(communicator, large, kLargeRepeats));
  const double n = communicator.size();
  const double sent = 2 * (n - 1) / n * static_cast<double>(kLargeElements * sizeof(float));
  link.bytes_per_second = sent / std::max(seconds - link.latency_seconds, seconds / 2);
  RETURN_IF_ERROR(communicator.Broadcast(&link, sizeof(link), 0));
  return link;
}

}  // namespace trainctl

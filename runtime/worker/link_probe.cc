#include "runtime/worker/link_probe.h"

#include <algorithm>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr size_t kSmallElements = 16;
constexpr size_t kLargeElements = size_t{1} << 18;  // 1 MiB
constexpr int kSmallRepeats = 21;
constexpr int kLargeRepeats = 5;

// Times of several, in rising order, after one that finds cold caches and memory never touched.
absl::StatusOr<std::vector<double>> Measure(Communicator& communicator, size_t elements,
                                            int repeats) {
  std::vector<float> data(elements);
  std::vector<double> taken;
  for (int i = 0; i <= repeats; ++i) {
    const Instant start = Now();
    RETURN_IF_ERROR(communicator.AllReduceSum(data.data(), data.size()));
    if (i > 0) taken.push_back(ToSeconds(Now() - start));
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

}  // namespace

absl::StatusOr<LinkMeasurement> ProbeLink(Communicator& communicator) {
  LinkMeasurement link;
  if (communicator.size() == 1) return link;
  // The usual latency, since a rank that happens to find all others ready measures next to none;
  // the best bandwidth, since what disturbs a long transfer only ever makes it longer.
  ASSIGN_OR_RETURN(const std::vector<double> small,
                   Measure(communicator, kSmallElements, kSmallRepeats));
  ASSIGN_OR_RETURN(const std::vector<double> large,
                   Measure(communicator, kLargeElements, kLargeRepeats));
  link.latency_seconds = small[small.size() / 2];
  const double seconds = large[0];
  const double n = communicator.size();
  const double sent = 2 * (n - 1) / n * static_cast<double>(kLargeElements * sizeof(float));
  link.bytes_per_second = sent / std::max(seconds - link.latency_seconds, seconds / 2);
  RETURN_IF_ERROR(communicator.Broadcast(&link, sizeof(link), 0));
  return link;
}

}  // namespace trainctl

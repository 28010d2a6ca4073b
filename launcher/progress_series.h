// How a run went, in few enough points to draw: step, loss and speed over time. PURE.
#ifndef TRAINCTL_LAUNCHER_PROGRESS_SERIES_H_
#define TRAINCTL_LAUNCHER_PROGRESS_SERIES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainctl {

struct ProgressPoint {
  double seconds = 0;  // since the job's first epoch was formed
  int64_t epoch = 0;
  uint64_t step = 0;
  double loss = 0;
  double samples_per_second = 0;
};

// Not thread-safe. However long the run, at most kMost points are kept, evenly spread over it.
class ProgressSeries {
 public:
  static constexpr size_t kMost = 512;

  void Add(const ProgressPoint& point);
  const std::vector<ProgressPoint>& points() const { return points_; }

 private:
  std::vector<ProgressPoint> points_;
  double spacing_ = 0;  // seconds between points, from when there were kMost
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_PROGRESS_SERIES_H_

#include "launcher/progress_series.h"

namespace trainctl {

void ProgressSeries::Add(const ProgressPoint& point) {
  if (!points_.empty()) {
    const ProgressPoint& last = points_.back();
    if (last.epoch == point.epoch && last.step == point.step) return;
    // The newest is always kept, so that the series ends where the run does.
    const bool crowded =
        points_.size() > 1 && last.seconds - points_[points_.size() - 2].seconds < spacing_;
    if (crowded && last.epoch == point.epoch) points_.pop_back();
  }
  points_.push_back(point);
  if (points_.size() <= kMost) return;
  std::vector<ProgressPoint> half;
  for (size_t i = 0; i < points_.size(); i += 2) half.push_back(points_[i]);
  if (points_.size() % 2 == 0) half.push_back(points_.back());
  points_ = std::move(half);
  spacing_ = 2 * (points_.back().seconds - points_.front().seconds) / kMost;
}

}  // namespace trainctl

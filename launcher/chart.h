// Charts as SVG text, for pages that must stand alone. PURE.
#ifndef TRAINCTL_LAUNCHER_CHART_H_
#define TRAINCTL_LAUNCHER_CHART_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl {

std::string EscapeHtml(absl::string_view text);  // for text and for quoted attributes

struct ChartLine {
  std::string title;
  std::string x_unit;  // "s"
  std::vector<std::pair<double, double>>
      points;  // in any order; those that are not finite are left out
  std::vector<std::pair<double, std::string>> marks;  // vertical lines at x, with a text on hover
};
// Empty if fewer than two points can be drawn.
std::string LineChart(const ChartLine& line);

struct ChartPart {
  std::string name;
  double value = 0;
  std::string colour;  // CSS
};
// One bar of all parts, with a legend in their unit and per cent. Empty if they sum to nothing.
std::string ShareBar(const std::vector<ChartPart>& parts, absl::string_view unit);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_CHART_H_

#include "launcher/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace trainctl {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 220;
constexpr double kLeft = 70;  // room for the numbers
constexpr double kRight = 10;
constexpr double kTop = 12;
constexpr double kBottom = 28;
constexpr int kTicks = 5;

// 1, 2 or 5 times a power of ten, so that about kTicks of them cover the span.
double NiceStep(double span) {
  const double raw = span / kTicks;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

struct Axis {
  double low = 0;
  double high = 1;
  double step = 1;
};

Axis MakeAxis(double low, double high) {
  if (!(high > low)) {
    const double pad = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= pad;
    high += pad;
  }
  Axis axis{low, high, NiceStep(high - low)};
  axis.low = std::floor(low / axis.step) * axis.step;
  axis.high = std::ceil(high / axis.step) * axis.step;
  return axis;
}

double At(const Axis& axis, double value, double from, double to) {
  return from + (value - axis.low) / (axis.high - axis.low) * (to - from);
}

std::string Grid(const Axis& x, const Axis& y, const std::string& x_unit) {
  std::string svg;
  for (double value = y.low; value <= y.high + y.step / 2; value += y.step) {
    const double at = At(y, value, kHeight - kBottom, kTop);
    absl::StrAppendFormat(&svg,
                          "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                          kLeft, kWidth - kRight, at, at, kLeft - 6, at + 4,
                          std::abs(value) < y.step / 1000 ? 0.0 : value);
  }
  for (double value = x.low; value <= x.high + x.step / 2; value += x.step) {
    absl::StrAppendFormat(&svg,
                          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.6g%s</text>\n",
                          At(x, value, kLeft, kWidth - kRight), kHeight - 8,
                          std::abs(value) < x.step / 1000 ? 0.0 : value, EscapeHtml(x_unit));
  }
  return svg;
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string LineChart(const ChartLine& line) {
  std::vector<std::pair<double, double>> points;
  for (const auto& point : line.points) {
    if (std::isfinite(point.first) && std::isfinite(point.second)) points.push_back(point);
  }
  if (points.size() < 2) return "";
  std::stable_sort(points.begin(), points.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto [low, high] =
      std::minmax_element(points.begin(), points.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  const Axis x = MakeAxis(points.front().first, points.back().first);
  const Axis y = MakeAxis(low->second, high->second);
  std::string svg = absl::StrFormat(
      "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %g %g\" role=\"img\" "
      "aria-label=\"%s\">\n",
      EscapeHtml(line.title), kWidth, kHeight, EscapeHtml(line.title));
  absl::StrAppend(&svg, Grid(x, y, line.x_unit));
  for (const auto& [where, text] : line.marks) {
    if (!(where >= x.low && where <= x.high)) continue;
    const double at = At(x, where, kLeft, kWidth - kRight);
    absl::StrAppendFormat(&svg,
                          "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" "
                          "y2=\"%g\"><title>%s</title></line>\n",
                          at, at, kTop, kHeight - kBottom, EscapeHtml(text));
  }
  absl::StrAppend(&svg, "<polyline class=\"line\" points=\"");
  for (const auto& [px, py] : points) {
    absl::StrAppendFormat(&svg, "%.1f,%.1f ", At(x, px, kLeft, kWidth - kRight),
                          At(y, py, kHeight - kBottom, kTop));
  }
  absl::StrAppend(&svg, "\"/>\n</svg></figure>\n");
  return svg;
}

std::string ShareBar(const std::vector<ChartPart>& parts, absl::string_view unit) {
  double sum = 0;
  for (const ChartPart& part : parts) sum += std::max(part.value, 0.0);
  if (!(sum > 0) || !std::isfinite(sum)) return "";
  std::string bar = absl::StrFormat("<svg viewBox=\"0 0 %g 26\" role=\"img\">\n", kWidth);
  std::string legend = "<ul class=\"legend\">";
  double from = 0;
  for (const ChartPart& part : parts) {
    const double share = std::max(part.value, 0.0) / sum;
    const std::string text = absl::StrFormat("%s: %.2f %s (%.1f %%)", part.name, part.value,
                                             std::string(unit), 100 * share);
    absl::StrAppendFormat(&bar,
                          "<rect x=\"%.2f\" y=\"2\" width=\"%.2f\" height=\"22\" "
                          "fill=\"%s\"><title>%s</title></rect>\n",
                          from * kWidth, share * kWidth, EscapeHtml(part.colour), EscapeHtml(text));
    absl::StrAppend(&legend, "<li><span style=\"background:", EscapeHtml(part.colour), "\"></span>",
                    EscapeHtml(text), "</li>");
    from += share;
  }
  return absl::StrCat(bar, "</svg>\n", legend, "</ul>\n");
}

}  // namespace trainctl

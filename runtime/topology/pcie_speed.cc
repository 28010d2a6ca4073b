#include "runtime/topology/pcie_speed.h"

#include "absl/strings/numbers.h"

namespace trainctl {

int PcieGeneration(absl::string_view speed) {
  double rate;
  if (!absl::SimpleAtod(speed.substr(0, speed.find(' ')), &rate)) {
    return 0;
  }
  int generation = 0;
  for (const double least : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
    generation += rate >= least ? 1 : 0;
  }
  return generation;
}

double PcieGigabytesPerSecond(int generation, int width) {
  if (generation < 1 || generation > 6) {
    return 0;
  }
  // 12 GB/s is what 16 lanes of the third generation give in practice; each generation doubles it.
  return 12.0 / 16 * width * static_cast<double>(1 << generation) / 8;
}

}  // namespace trainctl

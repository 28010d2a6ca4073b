// Progress in words. Pure.
#ifndef TRAINCTL_LAUNCHER_PROGRESS_TEXT_H_
#define TRAINCTL_LAUNCHER_PROGRESS_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/job_client.h"

namespace trainctl {

std::string RateText(double per_second);                       // "945", "12.3k", "1.20M"
std::string SecondsText(double seconds);                       // "0:42", "12:05", "3:07:00"
std::string CountText(int64_t count, absl::string_view noun);  // "1 worker", "2 workers"

// Seconds until the last step at the present rate; negative if unknown.
double SecondsLeft(const ProgressSeen& progress);

// "epoch 3.20  step 1200/2000  loss 0.331  12.3k samples/s  ETA 0:42".
std::string ProgressText(const ProgressSeen& progress);

// "[######........]" of `columns` columns in all; "" if the total is unknown or columns < 5.
std::string ProgressBar(const ProgressSeen& progress, int columns);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_PROGRESS_TEXT_H_

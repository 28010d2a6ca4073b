// A job's report.json for people: one page with charts that needs nothing else, and a trace for
// chrome://tracing, Perfetto and other readers of the Trace Event Format.
#ifndef TRAINCTL_LAUNCHER_REPORT_PAGE_H_
#define TRAINCTL_LAUNCHER_REPORT_PAGE_H_

#include <string>

#include "absl/status/statusor.h"

namespace trainctl {

// Both take the text of report.json, whatever version of ours wrote it: what is not there is not
// shown. DATA_LOSS if it is no JSON object.
absl::StatusOr<std::string> ReportPage(const std::string& report_json);
absl::StatusOr<std::string> ReportTimeline(const std::string& report_json);

// Not pure: writes both as report.html and timeline.json into the folder of the job.
absl::Status WriteReportPages(const std::string& job_folder, const std::string& report_json);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_REPORT_PAGE_H_

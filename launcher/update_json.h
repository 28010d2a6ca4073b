// What --json prints: one object per line, each with "schema": 1 and "type". Pure.
#ifndef TRAINCTL_LAUNCHER_UPDATE_JSON_H_
#define TRAINCTL_LAUNCHER_UPDATE_JSON_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"

namespace trainctl {

// A line of output is LineJson's matter; REQUIRES: `update` is no OutputBatch.
std::string UpdateJson(const JobUpdate& update);
std::string LineJson(int64_t epoch, int rank, int stream, absl::string_view line);

// A job as status and list show it, type "job": what every job has, and what is known beyond that.
struct JobLine {
  std::string job;
  std::string name;
  std::string state;  // a phase, an outcome, "interrupted", "not answering" or "damaged"
  int64_t step = 0;
  int64_t started_s = 0;  // since 1970
  std::string job_folder;
};
JobLine LineOf(const JobDescription& job);  // without `started_s`
std::string JobJson(const JobLine& line);
std::string JobJson(const JobLine& line, const JobDescription& job);  // one that runs
std::string JobJson(const JobLine& line, const ReportSeen& report, absl::string_view report_path);

// A node of a job that runs, type "node".
std::string NodeJson(absl::string_view job, const NodeView& node);

std::string ErrorJson(int exit_status, absl::string_view message);  // type "error"

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_UPDATE_JSON_H_

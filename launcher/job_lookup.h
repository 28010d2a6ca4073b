// Jobs of this user on this machine, as their folders and sockets show them. Reads the file system;
// starts nothing and calls nobody.
#ifndef TRAINCTL_LAUNCHER_JOB_LOOKUP_H_
#define TRAINCTL_LAUNCHER_JOB_LOOKUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct KnownJob {
  std::string id;
  std::string folder;
  int64_t started_s = 0;  // seconds since 1970
};

// Newest first. UNAVAILABLE: the folder cannot be read; one that does not exist has no jobs.
absl::StatusOr<std::vector<KnownJob>> KnownJobs(const std::string& state_folder);

// Whether a coordinator of this job listens.
bool CoordinatorListens(absl::string_view job_id);
// Whether the job is over: its report, or else its journal, names an outcome. Reads the files.
bool IsOver(const KnownJob& job);

// `word` is an id, the beginning of exactly one id, or a name that exactly one job has (of several,
// exactly one that runs). NOT_FOUND; INVALID_ARGUMENT lists the jobs that it may mean.
absl::StatusOr<KnownJob> FindJob(const std::string& state_folder, absl::string_view word);

// What report.json says, as far as a front end shows it; of a job that is over and has none, what
// its journal says.
struct ReportSeen {
  std::string name;
  std::string outcome;  // empty: not over yet
  int exit_status = 1;
  std::string reason;
  int64_t steps = 0;
  int restarts = 0;
  std::string log_folder;
  std::string text;  // the whole file; empty: there is none, or an old one
};
// DATA_LOSS if it is no report.
absl::StatusOr<ReportSeen> ReadReport(const KnownJob& job);
std::string ReportPath(const KnownJob& job);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_JOB_LOOKUP_H_

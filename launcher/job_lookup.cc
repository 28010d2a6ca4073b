#include "launcher/job_lookup.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <utility>
#include <variant>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/journal.h"
#include "launcher/launch_request.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

constexpr size_t kLargestReport = size_t{64} << 20;

// An id is the stem of the name, a hyphen, and the suffix that makes it unique.
bool HasName(const KnownJob& job, absl::string_view name) {
  const std::string stem = IdStem(name);
  return absl::StartsWith(job.id, stem) && job.id.rfind('-') == stem.size();
}

// What is not known yet is null or absent.
template <typename Value>
void Get(const nlohmann::json& json, const char* key, Value* value) {
  if (const auto it = json.find(key); it != json.end() && !it->is_null()) {
    *value = it->template get<Value>();
  }
}

absl::Status Unreadable(int error, const std::string& folder) {
  return absl::UnavailableError(
      absl::StrCat("look for jobs: ", ErrnoStatus(error, folder).message(),
                   "; XDG_STATE_HOME says where jobs are kept"));
}

absl::Status Ambiguous(absl::string_view word, const std::vector<KnownJob>& jobs) {
  std::string text = absl::StrCat("\"", word, "\" may be any of these jobs; give an id:");
  for (const KnownJob& job : jobs) {
    const absl::StatusOr<ReportSeen> report = ReadReport(job);
    std::string state = report.ok() ? report->outcome : "";
    if (state.empty()) state = CoordinatorListens(job.id) ? "running" : "interrupted";
    absl::StrAppend(&text, "\n  ", job.id, "  ", state);
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace

absl::StatusOr<std::vector<KnownJob>> KnownJobs(const std::string& state_folder) {
  std::vector<KnownJob> jobs;
  const std::string jobs_folder = JoinPath(state_folder, "jobs");
  DIR* folder = opendir(jobs_folder.c_str());
  if (folder == nullptr && errno == ENOENT) {
    return jobs;
  }
  if (folder == nullptr) {
    return Unreadable(errno, jobs_folder);
  }
  auto close = absl::MakeCleanup([folder] { closedir(folder); });
  while (const dirent* entry = readdir(folder)) {
    struct stat found {};
    KnownJob job;
    job.id = entry->d_name;
    job.folder = JoinPath(jobs_folder, job.id);
    if (job.id[0] == '.') {
      continue;
    }
    const bool there = stat(job.folder.c_str(), &found) == 0;
    if (!there && errno != ENOENT) {
      return Unreadable(errno, job.folder);
    }
    if (!there || !S_ISDIR(found.st_mode)) {
      continue;
    }
    struct stat spec {};
    const bool has_spec = stat(JoinPath(job.folder, "spec.pb").c_str(), &spec) == 0;
    job.started_s = has_spec ? spec.st_mtim.tv_sec : found.st_mtim.tv_sec;
    jobs.push_back(std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(), [](const KnownJob& a, const KnownJob& b) {
    return a.started_s != b.started_s ? a.started_s > b.started_s : a.id < b.id;
  });
  return jobs;
}

bool CoordinatorListens(absl::string_view job_id) { return ConnectUnix(JobSocket(job_id)).ok(); }

std::string ReportPath(const KnownJob& job) { return JoinPath(job.folder, "report.json"); }

bool IsOver(const KnownJob& job) {
  absl::StatusOr<ReportSeen> report = ReadReport(job);
  return report.ok() && !report->outcome.empty();
}

absl::StatusOr<KnownJob> FindJob(const std::string& state_folder, absl::string_view word) {
  if (word.empty()) {
    return absl::InvalidArgumentError("JOB is empty; trainctl list shows the jobs");
  }
  std::vector<KnownJob> begins;
  std::vector<KnownJob> named;
  ASSIGN_OR_RETURN(std::vector<KnownJob> known, KnownJobs(state_folder));
  for (KnownJob& job : known) {
    if (job.id == word) {
      return job;
    }
    if (HasName(job, word)) {
      named.push_back(job);
    }
    if (absl::StartsWith(job.id, word)) {
      begins.push_back(std::move(job));
    }
  }
  std::vector<KnownJob>& found = named.empty() ? begins : named;
  if (found.size() == 1) {
    return found.front();
  }
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("no job \"", word, "\" in ", state_folder,
                                            "/jobs; trainctl list shows those that are known"));
  }
  std::vector<KnownJob> running;
  std::copy_if(found.begin(), found.end(), std::back_inserter(running),
               [](const KnownJob& job) { return !IsOver(job) && CoordinatorListens(job.id); });
  if (running.size() == 1) {
    return running.front();
  }
  return Ambiguous(word, found);
}

namespace {

absl::StatusOr<ReportSeen> ParseReport(const KnownJob& job) {
  ReportSeen report;
  ASSIGN_OR_RETURN(report.text, ReadFile(ReportPath(job), kLargestReport));
  try {
    const nlohmann::json json = ParseJson(report.text);
    if (json.is_discarded()) {
      return absl::DataLossError(absl::StrCat(ReportPath(job), " is no report: it is no JSON"));
    }
    report.name = json.at("name").get<std::string>();
    Get(json, "outcome", &report.outcome);
    Get(json, "exit_status", &report.exit_status);
    Get(json, "reason", &report.reason);
    Get(json, "steps", &report.steps);
    Get(json, "restarts", &report.restarts);
    Get(json, "log_folder", &report.log_folder);
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat(ReportPath(job), " is no report: ", error.what()));
  }
  return report;
}

// What the job's journal says of its end, if it has come to one.
std::optional<ReportSeen> EndInJournal(const KnownJob& job) {
  const absl::StatusOr<std::vector<JournalRecord>> records =
      ReadJournal(JoinPath(job.folder, "journal"));
  if (!records.ok()) {
    return std::nullopt;
  }
  ReportSeen seen;
  seen.name = job.id.substr(0, job.id.rfind('-'));
  for (const JournalRecord& record : *records) {
    if (const auto* formed = std::get_if<EpochFormed>(&record)) {
      seen.restarts = static_cast<int>(formed->epoch.value);
    } else if (const auto* committed = std::get_if<CheckpointCommitted>(&record)) {
      seen.steps = committed->step.value;
    } else if (const auto* finished = std::get_if<Finished>(&record)) {
      seen.outcome = OutcomeName(finished->outcome.kind);
      seen.exit_status = finished->outcome.exit_status;
      seen.reason = finished->outcome.reason;
    }
  }
  return seen.outcome.empty() ? std::nullopt : std::optional<ReportSeen>(std::move(seen));
}

}  // namespace

absl::StatusOr<ReportSeen> ReadReport(const KnownJob& job) {
  absl::StatusOr<ReportSeen> report = ParseReport(job);
  const bool over = report.ok() && !report->outcome.empty();
  if (over || CoordinatorListens(job.id)) {
    return report;
  }
  // The disk may have been full when the report was to be written.
  if (std::optional<ReportSeen> end = EndInJournal(job); end.has_value()) {
    if (report.ok()) {
      end->name = report->name;
      end->steps = std::max(end->steps, report->steps);
      end->log_folder = report->log_folder;
    }
    return *std::move(end);
  }
  return report;
}

}  // namespace trainctl

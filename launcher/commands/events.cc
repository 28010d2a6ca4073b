// events and report: what happened to a job, from what it left on disk.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/event_text.h"
#include "launcher/job_lookup.h"
#include "launcher/journal.h"
#include "launcher/report_page.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"

namespace trainctl {

int RunEvents(const JobFlags& flags) {
  const absl::StatusOr<KnownJob> job = FindJob(StateFolder(), flags.job);
  if (!job.ok()) return Fail(job.status());
  const absl::StatusOr<std::vector<JournalRecord>> records =
      ReadJournal(JoinPath(job->folder, "journal"));
  if (!records.ok()) return Fail(records.status());
  Console console;
  for (const JournalRecord& record : *records) {
    console.Out(flags.json ? EventJson(record) : EventLine(record));
  }
  return kExitDone;
}

int RunReport(const JobFlags& flags) {
  const absl::StatusOr<KnownJob> job = FindJob(StateFolder(), flags.job);
  if (!job.ok()) return Fail(job.status());
  const absl::StatusOr<ReportSeen> report = ReadReport(*job);
  if (!report.ok()) return Fail(report.status());
  if (report->text.empty()) {
    return Fail(absl::NotFoundError(absl::StrCat("job ", job->id, " has no report in ", job->folder,
                                                 "; trainctl events ", job->id,
                                                 " shows what its journal tells")));
  }
  const absl::Status written = WriteReportPages(job->folder, report->text);
  if (!written.ok()) return Fail(written);
  Console().Out(
      absl::StrCat("outcome      ", report->outcome.empty() ? "not over" : report->outcome, "\n",
                   "page         ", job->folder, "/report.html\n", "timeline     ", job->folder,
                   "/timeline.json (for chrome://tracing or ui.perfetto.dev)\n", "data         ",
                   ReportPath(*job), "\n"));
  return kExitDone;
}

}  // namespace trainctl

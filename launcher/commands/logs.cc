#include <re2/re2.h>
#include <unistd.h>

#include <climits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/flag_value.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "launcher/log_files.h"
#include "launcher/update_json.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/loop.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr Duration kFollowEvery = milliseconds(100);
constexpr Duration kAskFor = seconds(2);
constexpr size_t kFlushAt = size_t{256} << 10;

struct Filter {
  std::optional<std::vector<int>> ranks;
  std::unique_ptr<re2::RE2> pattern;  // null: every line
  std::optional<int64_t> since;       // nanoseconds since 1970
};

// One more than the highest rank; 0: nobody knows yet.
int RanksOf(const KnownJob& job) {
  if (!IsOver(job)) {
    const auto running = JobClient(JobSocket(job.id)).Describe(kAskFor);
    return running.ok() ? running->view.world_size : 0;
  }
  const std::set<int> logged = LoggedRanks(JoinPath(job.folder, "logs"));
  return logged.empty() ? 0 : *logged.rbegin() + 1;
}

// A rank that the job does not have would look like one that printed nothing.
absl::Status CheckRanks(const KnownJob& job, const std::vector<int>& ranks) {
  const int count = RanksOf(job);
  if (count == 0 || ranks.back() < count) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--rank: found ", ranks.back(), ", but job ", job.id, " has ",
                   count == 1 ? "only rank " : "ranks 0 to ", count - 1));
}

absl::StatusOr<Filter> ReadFilter(const KnownJob& job, const JobFlags& flags) {
  Filter filter;
  if (flags.ranks.has_value()) {
    absl::StatusOr<std::vector<int>> ranks = ParseRankList(*flags.ranks);
    if (!ranks.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--rank: ", ranks.status().message()));
    }
    RETURN_IF_ERROR(CheckRanks(job, *ranks));
    filter.ranks = *std::move(ranks);
  }
  if (flags.since.has_value()) {
    const absl::StatusOr<int64_t> since = ParseSince(*flags.since, WallClockNanos());
    if (!since.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--since: ", since.status().message()));
    }
    filter.since = *since;
  }
  if (flags.grep.has_value()) {
    // RE2, because a line of a training log may be megabytes long and a pattern may come from
    // anybody: it takes linear time and a bounded stack.
    filter.pattern = std::make_unique<re2::RE2>(*flags.grep, re2::RE2::Quiet);
    if (!filter.pattern->ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--grep: \"", *flags.grep, "\" is no regular expression: ", filter.pattern->error()));
    }
  }
  return filter;
}

// Prints what the logs hold, from where it stopped the last time.
class Printer {
 public:
  Printer(const KnownJob& job, Filter filter, bool json)
      : logs_(JoinPath(job.folder, "logs"), std::move(filter.ranks), filter.since),
        pattern_(std::move(filter.pattern)),
        json_(json) {
    char node[HOST_NAME_MAX + 1] = {};
    gethostname(node, sizeof node - 1);
    node_ = node;
  }

  // False once nobody reads any more.
  bool Print(bool last) {
    logs_.Read(last, [&](const LogLine& line) { return PrintLine(line); });
    Flush();
    for (const std::string& loss : logs_.TakeLosses()) {
      console_.Err(absl::StrCat("trainctl: ", loss, "\n"));
    }
    return !console_.reader_gone();
  }

 private:
  bool PrintLine(const LogLine& line) {
    if (pattern_ != nullptr &&
        !re2::RE2::PartialMatch({line.line.data(), line.line.size()}, *pattern_)) {
      return true;
    }
    if (json_) {
      absl::StrAppend(&out_, LineJson(line.epoch, line.rank, line.stream, line.line));
    } else {
      absl::StrAppend(&out_, "[", node_, ":", line.rank, "] ", line.line, "\n");
    }
    if (out_.size() >= kFlushAt) {
      Flush();
    }
    return !console_.reader_gone();
  }
  void Flush() {
    console_.Out(out_);
    out_.clear();
  }

  Console console_;
  LogFiles logs_;
  std::unique_ptr<re2::RE2> pattern_;
  const bool json_;
  std::string node_;
  std::string out_;
};

// Until the job is over or has lost its coordinator.
void Follow(const KnownJob& job, Printer* printer) {
  Loop loop;
  std::function<void()> look = [&] {
    const bool over = !CoordinatorListens(job.id) || IsOver(job);
    if (!printer->Print(over) || over) {
      loop.Quit(0);
      return;
    }
    loop.After(kFollowEvery, look);
  };
  look();
  loop.Run();
}

}  // namespace

int RunLogs(const JobFlags& flags) {
  absl::StatusOr<KnownJob> job = FindJob(StateFolder(), flags.job);
  if (!job.ok()) {
    return Fail(job.status());
  }
  absl::StatusOr<Filter> filter = ReadFilter(*job, flags);
  if (!filter.ok()) {
    return Fail(filter.status());
  }
  Printer printer(*job, *std::move(filter), flags.json);
  if (flags.follow) {
    Follow(*job, &printer);
  } else {
    printer.Print(/*last=*/true);
  }
  return kExitDone;
}

}  // namespace trainctl

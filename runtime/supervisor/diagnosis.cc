#include "runtime/supervisor/diagnosis.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/file.h"
#include "runtime/supervisor/containment.h"

namespace trainctl {
namespace {

constexpr uint64_t kCollectivesShown = 16;
constexpr size_t kMostThreads = 4096;  // of all processes together

// A record as it was at one moment; false while the worker writes it.
struct CollectiveSeen {
  uint32_t op = 0;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};
bool ReadRecord(CollectiveRecord& record, CollectiveSeen* seen) {
  const uint32_t before = record.lock.load(std::memory_order_acquire);
  *seen = {record.op, record.sequence, record.bytes, record.start_ns, record.end_ns};
  // Changes nothing, and comes after the reading of the fields.
  return before % 2 == 0 && record.lock.fetch_add(0, std::memory_order_acq_rel) == before;
}

std::string Since(int64_t ns, Instant now) {
  return absl::StrFormat("%.3f s ago", ToSeconds(now - Instant{ns}));
}

std::string DescribeCollectives(WorkerPage& page, Instant now) {
  const uint64_t written = page.collectives.load();
  std::string text = absl::StrCat("collectives: ", written, "\n");
  for (uint64_t i = written - std::min(written, kCollectivesShown); i < written; ++i) {
    CollectiveSeen seen;
    if (!ReadRecord(page.ring[i % kCollectiveRingSize], &seen)) continue;
    absl::StrAppend(&text, "  number ", seen.sequence, ": ",
                    CollectiveOpName(static_cast<CollectiveOp>(seen.op)), ", ", seen.bytes,
                    " bytes, begun ", Since(seen.start_ns, now));
    if (seen.end_ns == 0) {
      absl::StrAppend(&text, ", not finished\n");
    } else {
      absl::StrAppendFormat(&text, ", took %.3f ms\n",
                            ToMillis(Duration(seen.end_ns - seen.start_ns)));
    }
  }
  return text;
}

std::string DescribeThreads(pid_t pid, size_t* budget) {
  const std::string folder = absl::StrCat("/proc/", pid);
  std::string text = absl::StrCat("process ", pid, " (", ReadProc(folder + "/comm"), ")\n");
  for (const std::string& thread : FolderEntries(folder + "/task")) {
    if (*budget == 0) break;
    --*budget;
    const std::string task = absl::StrCat(folder, "/task/", thread);
    const std::string stat = ReadProc(task + "/stat");
    const size_t name_end = stat.rfind(')');
    const char state =
        name_end != std::string::npos && name_end + 2 < stat.size() ? stat[name_end + 2] : '?';
    absl::StrAppend(&text, "  thread ", thread, " (", ReadProc(task + "/comm"), "), state ",
                    absl::string_view(&state, 1), ", waits in ", ReadProc(task + "/wchan"),
                    ", system call ", ReadProc(task + "/syscall"), "\n");
    // For root only.
    const std::string stack = ReadProc(task + "/stack");
    if (!stack.empty()) absl::StrAppend(&text, "    ", stack, "\n");
  }
  return text;
}

bool IsInstalled(const std::string& program) { return ::access(program.c_str(), X_OK) == 0; }

}  // namespace

int64_t CpuNanos(pid_t pid) {
  const std::string stat = ReadProc(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  unsigned long user = 0;
  unsigned long system = 0;
  // Fields 3 to 13 lie between the name and the two times.
  if (name_end == std::string::npos ||
      std::sscanf(stat.c_str() + name_end + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2) {
    return 0;
  }
  return static_cast<int64_t>(user + system) * (1'000'000'000 / ::sysconf(_SC_CLK_TCK));
}

frame::RankEvidence EvidenceOf(int32_t rank, pid_t pid, WorkerPage& page, Instant now) {
  frame::RankEvidence evidence;
  evidence.rank = rank;
  evidence.phase = page.phase.load();
  evidence.step = page.step.load();
  const int64_t since = page.phase_since_ns.load();
  if (since > 0) evidence.phase_ns = (now - Instant{since}).count();
  evidence.collectives = page.collectives.load();
  CollectiveSeen newest;
  if (evidence.collectives > 0 &&
      ReadRecord(page.ring[(evidence.collectives - 1) % kCollectiveRingSize], &newest)) {
    evidence.in_collective = newest.end_ns == 0;
    evidence.collective = absl::StrCat(CollectiveOpName(static_cast<CollectiveOp>(newest.op)),
                                       " of ", newest.bytes, " bytes");
  }
  const std::optional<Descendant> seen = ReadProcess(pid);
  evidence.stopped = seen && (seen->state == 'T' || seen->state == 't');
  return evidence;
}

std::string DescribeWorker(pid_t pid, WorkerPage& page, Instant now) {
  std::string text = "page: ";
  const auto phase = static_cast<WorkerPhase>(page.phase.load());
  if (phase == WorkerPhase::kNone) {
    absl::StrAppend(&text, "nothing written\n");
  } else {
    absl::StrAppend(&text, "step ", page.step.load(), ", in phase ", WorkerPhaseName(phase),
                    " since ", Since(page.phase_since_ns.load(), now), "\n",
                    DescribeCollectives(page, now));
  }
  size_t budget = kMostThreads;
  absl::StrAppend(&text, DescribeThreads(pid, &budget));
  for (const Descendant& below : ListDescendantsOf(pid)) {
    absl::StrAppend(&text, DescribeThreads(below.pid, &budget));
  }
  return text;
}

std::vector<std::string> StackCommand(pid_t pid) {
  const std::string number = absl::StrCat(pid);
  for (const char* program : {"/usr/local/bin/py-spy", "/usr/bin/py-spy"}) {
    if (IsInstalled(program)) return {program, "dump", "--nonblocking", "--pid", number};
  }
  if (!IsInstalled("/usr/bin/gdb")) return {};
  return {"/usr/bin/gdb",
          "--batch",
          "-nx",
          "-iex",
          "set auto-load off",
          "-iex",
          "set debuginfod enabled off",
          "-ex",
          "thread apply all backtrace 64",
          "-p",
          number};
}

}  // namespace trainctl

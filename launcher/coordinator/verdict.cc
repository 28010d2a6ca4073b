#include "launcher/coordinator/verdict.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/coordinator/error_json.h"
#include "launcher/coordinator/exit_status.h"
#include "launcher/coordinator/memory_evidence.h"

namespace trainctl {
namespace {

constexpr size_t kLongestQuote = 300;

std::string SignalName(int signo) {
  static constexpr std::array<std::pair<int, const char*>, 15> kNames{{{SIGHUP, "SIGHUP"},
                                                                       {SIGINT, "SIGINT"},
                                                                       {SIGQUIT, "SIGQUIT"},
                                                                       {SIGILL, "SIGILL"},
                                                                       {SIGTRAP, "SIGTRAP"},
                                                                       {SIGABRT, "SIGABRT"},
                                                                       {SIGBUS, "SIGBUS"},
                                                                       {SIGFPE, "SIGFPE"},
                                                                       {SIGKILL, "SIGKILL"},
                                                                       {SIGUSR1, "SIGUSR1"},
                                                                       {SIGSEGV, "SIGSEGV"},
                                                                       {SIGUSR2, "SIGUSR2"},
                                                                       {SIGPIPE, "SIGPIPE"},
                                                                       {SIGTERM, "SIGTERM"},
                                                                       {SIGXCPU, "SIGXCPU"}}};
  for (const auto& [number, name] : kNames) {
    if (number == signo) return name;
  }
  return absl::StrCat("signal ", signo);
}

bool ContainsAny(absl::string_view text, std::initializer_list<absl::string_view> needles) {
  return std::any_of(needles.begin(), needles.end(),
                     [&](absl::string_view needle) { return absl::StrContains(text, needle); });
}

// The last line of a Python traceback, "Type: text", or empty. Lines of other kinds may follow it.
std::string ErrorLine(absl::string_view tail) {
  std::string found;
  for (const absl::string_view line : absl::StrSplit(tail, '\n')) {
    if (IsErrorLine(line)) found = std::string(absl::StripAsciiWhitespace(line));
  }
  return found;
}

// What the worker itself said went wrong: error.json if it wrote one, else its output.
std::string WhatItSaid(const WorkerExit& exit) {
  std::string error = ErrorMessage(exit.error_json);
  if (error.empty()) error = ErrorLine(exit.output_tail);
  if (error.size() > kLongestQuote) error = absl::StrCat(error.substr(0, kLongestQuote), "…");
  return error;
}

bool SaysPeerWasLost(const WorkerExit& exit) {
  const std::string said = absl::StrCat(WhatItSaid(exit), "\n", exit.output_tail);
  return ContainsAny(said, {"Connection closed by peer", "Connection reset by peer",
                            "Socket closed", "Broken pipe", "remote process exited",
                            "ncclRemoteError", "lost its peer", "peer was lost"});
}

std::optional<MemoryEvidence> MemoryEvidenceOf(const WorkerExit& exit) {
  std::optional<MemoryEvidence> found =
      FindMemoryEvidence(exit.message, WhatItSaid(exit), exit.output_tail);
  if (found && found->line.size() > kLongestQuote) {
    found->line = absl::StrCat(found->line.substr(0, kLongestQuote), "…");
  }
  return found;
}

std::optional<FailureClass> ClassByMemory(const WorkerExit& exit) {
  const std::optional<MemoryEvidence> evidence = MemoryEvidenceOf(exit);
  if (!evidence) return std::nullopt;
  return evidence->gpu ? FailureClass::kGpuOutOfMemory : FailureClass::kOutOfMemory;
}

// Errors of a program that is wrong whatever the weather.
bool SaysProgramIsWrong(const WorkerExit& exit) {
  const std::string said = WhatItSaid(exit);
  for (const absl::string_view type : {"ImportError", "ModuleNotFoundError", "SyntaxError",
                                       "IndentationError", "TabError", "NameError"}) {
    if (said == type || absl::StartsWith(said, absl::StrCat(type, ":"))) return true;
  }
  if (exit.kind != WorkerExit::Kind::kExited) return false;
  const absl::string_view tail = exit.output_tail;
  switch (exit.code) {
    case 1:  // python -m of a module that is not there
      return absl::StrContains(tail, ": No module named ") ||
             absl::StrContains(tail, "Error while finding module specification for");
    case 2:  // argparse, Python itself, and our trainer
      return (absl::StrContains(tail, "usage:") && absl::StrContains(tail, "error:")) ||
             absl::StrContains(tail, "can't open file") ||
             absl::StrContains(tail, "train-worker: ");
    case 126:  // shells
      return absl::StrContains(tail, "Permission denied");
    case 127:
      return absl::StrContains(tail, "not found");
    default:
      return false;
  }
}

bool CannotBeExecuted(int error) {
  static constexpr std::array kErrors{ENOENT, EACCES, ENOEXEC,      ENOTDIR, EISDIR,
                                      ELOOP,  E2BIG,  ENAMETOOLONG, EPERM,   EINVAL};
  return std::find(kErrors.begin(), kErrors.end(), error) != kErrors.end();
}

// Ended by its own supervisor, although nobody here had asked for it: its lease was over, or what
// holds the workers was ended.
FailureClass ClassOfOurs(const WorkerExit& exit) {
  const bool lease = exit.message.empty() || absl::StrContains(exit.message, "lease");
  return lease ? FailureClass::kNetwork : FailureClass::kInternal;
}

FailureClass ClassOf(const WorkerExit& exit, const EpochEvidence& evidence) {
  switch (exit.kind) {
    case WorkerExit::Kind::kSpawnFailed:
      if (CannotBeExecuted(exit.code)) return FailureClass::kUserError;
      return exit.code == ENOMEM ? FailureClass::kOutOfMemory : FailureClass::kInternal;
    case WorkerExit::Kind::kLost:
      return FailureClass::kInternal;
    case WorkerExit::Kind::kSignaled:
      if (exit.by_us) return ClassOfOurs(exit);
      // A scheduler may tell every process that the nodes are wanted back.
      if (exit.code == SIGTERM && evidence.preemptible) return FailureClass::kPreempted;
      return ClassByMemory(exit).value_or(FailureClass::kWorker);
    case WorkerExit::Kind::kExited:
      if (exit.by_us) return ClassOfOurs(exit);
      for (const FailureClass told : {FailureClass::kHang, FailureClass::kDisk}) {
        if (CauseOf(exit.error_json).failure_class == FailureClassName(told)) return told;
      }
      if (const auto memory = ClassByMemory(exit)) return *memory;
      if (!evidence.stepped && evidence.found_damage) return FailureClass::kDisk;
      if (!evidence.stepped && SaysProgramIsWrong(exit)) return FailureClass::kUserError;
      return FailureClass::kWorker;
  }
  return FailureClass::kInternal;
}

// An exit with what makes it more or less guilty, found out once.
struct Suspect {
  const RankExit* end = nullptr;
  bool victim = false;
};

// Turns a failure of the rank that tells of it into one of `rank`, if there is such a rank.
void Blame(int rank, const EpochEvidence& evidence, Failure* failure) {
  for (const NodeShare& share : evidence.nodes) {
    const bool here = rank >= share.first_rank && rank < share.first_rank + share.workers;
    if (!here || rank == failure->rank) continue;
    failure->reason = absl::StrCat("rank ", rank, " on ", share.node, " hangs; rank ",
                                   failure->rank, " waited for it in vain");
    failure->rank = rank;
    failure->node = share.node;
    return;
  }
}

// True if `a` is the better culprit.
bool MoreGuilty(const Suspect& a, const Suspect& b) {
  if (a.end->exit.by_us != b.end->exit.by_us) return b.end->exit.by_us;
  if (a.victim != b.victim) return b.victim;
  return a.end->node == b.end->node && a.end->exit.exit_ns < b.end->exit.exit_ns;
}

}  // namespace

bool IsFailure(const WorkerExit& exit) {
  return exit.kind != WorkerExit::Kind::kExited || exit.code != 0;
}

std::string DescribeExit(const WorkerExit& exit) {
  switch (exit.kind) {
    case WorkerExit::Kind::kExited:
      return absl::StrCat("exited with code ", exit.code);
    case WorkerExit::Kind::kSignaled:
      return absl::StrCat("was killed by ", SignalName(exit.code),
                          exit.core ? " (core dumped)" : "");
    case WorkerExit::Kind::kSpawnFailed:
      return absl::StrCat("could not be started: ", exit.message);
    case WorkerExit::Kind::kLost:
      return "was lost with its supervisor";
  }
  return "ended";
}

std::optional<Failure> JudgeExits(const EpochEvidence& evidence) {
  std::optional<Suspect> best;
  for (const RankExit& end : evidence.exits) {
    if (!IsFailure(end.exit)) continue;
    if (best && end.exit.by_us && !best->end->exit.by_us) continue;
    const Suspect suspect{&end, SaysPeerWasLost(end.exit)};
    if (!best || MoreGuilty(suspect, *best)) best = suspect;
  }
  if (!best) return std::nullopt;
  const RankExit* culprit = best->end;
  Failure failure;
  failure.failure_class = ClassOf(culprit->exit, evidence);
  failure.node = culprit->node;
  failure.rank = culprit->rank;
  failure.epoch = evidence.epoch;
  failure.exit = culprit->exit;
  failure.reason =
      absl::StrCat("rank ", culprit->rank, " on ", culprit->node, " ", DescribeExit(culprit->exit));
  // One that waited in vain ends first, and is not the one to blame.
  if (failure.failure_class == FailureClass::kHang)
    Blame(CauseOf(culprit->exit.error_json).rank, evidence, &failure);
  if (culprit->exit.by_us) {
    absl::StrAppend(
        &failure.reason, " because ",
        culprit->exit.message.empty() ? "the lease of its node had ended" : culprit->exit.message);
  }
  const std::string said = WhatItSaid(culprit->exit);
  if (!said.empty()) absl::StrAppend(&failure.reason, ": ", said);
  const bool by_memory = failure.failure_class == FailureClass::kOutOfMemory ||
                         failure.failure_class == FailureClass::kGpuOutOfMemory;
  const auto memory = by_memory ? MemoryEvidenceOf(culprit->exit) : std::nullopt;
  if (memory && memory->line != said) {
    absl::StrAppend(&failure.reason, said.empty() ? ": " : "; it had said: ", memory->line);
  }
  return failure;
}

bool IsVictim(const Failure& failure) {
  return failure.failure_class == FailureClass::kWorker && SaysPeerWasLost(failure.exit);
}

Failure JudgeLostNode(Epoch epoch, const std::string& node, absl::string_view why) {
  Failure failure;
  failure.failure_class = FailureClass::kNodeLost;
  failure.node = node;
  failure.epoch = epoch;
  failure.exit.kind = WorkerExit::Kind::kLost;
  failure.reason = absl::StrCat("node ", node, " was lost: ", why);
  return failure;
}

int FailedExitStatus(const JobSpec& spec, const Failure& failure, bool mendable) {
  if (spec.requeue_status) {
    if (failure.failure_class == FailureClass::kPreempted) return kExitPreempted;
    if (!mendable) return kExitNotMendable;
  }
  const WorkerExit& exit = failure.exit;
  if (exit.kind == WorkerExit::Kind::kSpawnFailed &&
      failure.failure_class == FailureClass::kUserError) {
    return kExitUsage;
  }
  return spec.propagate_exit_code && failure.rank >= 0 ? WorkerStatus(exit, 1) : 1;
}

int WorkerStatus(const WorkerExit& exit, int job_status) {
  if (exit.by_us) return job_status;
  if (exit.kind == WorkerExit::Kind::kExited) return exit.code;
  return exit.kind == WorkerExit::Kind::kSignaled ? 128 + exit.code : job_status;
}

}  // namespace trainctl

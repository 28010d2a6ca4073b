// preflight: whether the GPUs of this node do what they say. Every check is a child that may hang
// or crash (runtime/preflight); what it finds is evidence for the transport plan.
#include <stdlib.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/commands/nccl_environment.h"
#include "launcher/console.h"
#include "launcher/flag_value.h"
#include "launcher/preflight_findings.h"
#include "launcher/preflight_run.h"
#include "runtime/base/program.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"
#include "runtime/topology/preflight_record.h"
#include "runtime/topology/probe.h"

namespace trainctl {
namespace {

constexpr Duration kPatience = seconds(30);
constexpr const char* kPeersOff = "NCCL_P2P_DISABLE";

bool PeersAreOff() {
  const char* value = ::getenv(kPeersOff);
  return value != nullptr && std::string(value) == "1";
}

absl::StatusOr<std::vector<ChildOutput>> RunCollective(PreflightChildren& children, size_t ranks) {
  ASSIGN_OR_RETURN(const std::string folder, children.MakeFolder());
  std::vector<std::vector<std::string>> words;
  for (size_t rank = 0; rank < ranks; ++rank) {
    words.push_back({"collective", folder, absl::StrCat(rank), absl::StrCat(ranks)});
  }
  return children.Run(words);
}

absl::Status CheckCopies(PreflightChildren& children, const Topology& topology,
                         PreflightResult* result) {
  const int gpus = static_cast<int>(result->gpus.size());
  for (int done = 0; done < gpus * (gpus - 1);) {
    ASSIGN_OR_RETURN(const ChildOutput output, children.Run({"copies", absl::StrCat(done)}));
    const int through = AddCopies(output, topology, result);
    if (through == 0) break;
    done += through;
  }
  return absl::OkStatus();
}

// Proves that workers can sum, and, where peer access is the fault, that they can without it.
absl::Status CheckCollective(PreflightChildren& children, PlanRequest* request,
                             PreflightResult* result) {
  using Verdict = PreflightFinding::Verdict;
  const size_t ranks = result->gpus.size();
  request->nodes[0].bad_peer_access = result->bad_peer_access;
  const double expected = PlanTransport(*request).within.gigabytes_per_second;
  PreflightFinding as_is;
  if (result->bad_peer_access.empty() || PeersAreOff()) {
    ASSIGN_OR_RETURN(const std::vector<ChildOutput> outputs, RunCollective(children, ranks));
    as_is = ReadCollective(outputs, expected, false, result);
    result->findings.push_back(as_is);
    if (as_is.verdict == Verdict::kRight || as_is.verdict == Verdict::kSlow || ranks == 1 ||
        PeersAreOff()) {
      return absl::OkStatus();
    }
  }
  ::setenv(kPeersOff, "1", 1);
  const absl::StatusOr<std::vector<ChildOutput>> outputs = RunCollective(children, ranks);
  ::unsetenv(kPeersOff);
  RETURN_IF_ERROR(outputs.status());
  const PreflightFinding without = ReadCollective(*outputs, 0, true, result);
  result->findings.push_back(without);
  if (without.verdict == Verdict::kRight && as_is.verdict != Verdict::kRight) {
    result->bad_peer_access.push_back(absl::StrCat("an ", as_is.check, ": ", WordOf(as_is.verdict),
                                                   ", but right with NCCL_P2P_DISABLE=1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PreflightResult> Check(PreflightChildren& children, PlanRequest* request) {
  const Topology& topology = request->nodes[0];
  PreflightResult result;
  ASSIGN_OR_RETURN(const ChildOutput list, children.Run({"list"}));
  ASSIGN_OR_RETURN(result.gpus, ReadGpus(list, topology));
  ASSIGN_OR_RETURN(const ChildOutput memory, children.Run({"memory"}));
  AddMemory(memory, &result);
  RETURN_IF_ERROR(CheckCopies(children, topology, &result));
  RETURN_IF_ERROR(CheckCollective(children, request, &result));
  request->nodes[0].bad_peer_access = result.bad_peer_access;
  return result;
}

int NotFit(absl::string_view why) {
  return Fail(absl::FailedPreconditionError(absl::StrCat("preflight: ", why)));
}

}  // namespace

int RunPreflight(const PreflightFlags& flags) {
  Duration patience = kPatience;
  if (flags.deadline.has_value()) {
    const absl::StatusOr<Duration> given = ParseDuration(*flags.deadline);
    if (!given.ok()) return Fail(InFlag("--deadline", given.status()));
    patience = *given;
  }
  const absl::StatusOr<std::string> program = FindProgram("train-preflight");
  if (!program.ok()) {
    return NotFit(
        "this trainctl was built without CUDA and has no GPU to check; workers on CPUs need no "
        "preflight");
  }
  absl::StatusOr<Topology> topology = ProbeTopology();
  if (!topology.ok()) return Fail(topology.status());
  absl::StatusOr<PreflightChildren> children = PreflightChildren::Make(*program, patience);
  if (!children.ok()) return Fail(children.status());
  PlanRequest request;
  topology->bad_peer_access.clear();  // the last preflight's
  request.nodes = {*std::move(topology)};
  request.environment = NcclEnvironment();
  const absl::StatusOr<PreflightResult> result = Check(*children, &request);
  if (!result.ok()) return NotFit(result.status().message());
  const absl::Status recorded = RecordPreflight(request.nodes[0]);
  if (!recorded.ok()) return Fail(recorded);
  const bool fit = IsFit(*result, PeersAreOff());
  const TransportPlan plan = PlanTransport(request);
  Console console;
  if (flags.first) {
    console.Err(PreflightText(*result, plan, fit));
  } else {
    console.Out(flags.json ? absl::StrCat(JsonText(PreflightDocument(*result, plan, fit)), "\n")
                           : PreflightText(*result, plan, fit));
  }
  return fit ? kExitDone : kExitNotFit;
}

}  // namespace trainctl

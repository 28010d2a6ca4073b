// bench: a job whose workers measure what they do (runtime/bench). It is launched as any other, so
// that it is stopped, contained and told of as any other.
#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/flag_value.h"
#include "runtime/base/program.h"
#include "runtime/topology/probe.h"

namespace trainctl {
namespace {

constexpr uint64_t kLargest = uint64_t{256} << 20;
constexpr uint64_t kLeast = 8;

std::string WorkersHere() {
  const absl::StatusOr<Topology> topology = ProbeTopology();
  return topology.ok() && !topology->gpus.empty() ? "gpu" : "2";
}

}  // namespace

int RunBench(const BenchFlags& flags) {
  const std::string backend = flags.backend.value_or("auto");
  if (backend != "auto" && backend != "nccl" && backend != "gloo") {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("--backend: found \"", backend, "\", expected auto, nccl or gloo")));
  }
  uint64_t largest = kLargest;
  if (flags.largest.has_value()) {
    const absl::StatusOr<uint64_t> given = ParseSize(*flags.largest);
    if (!given.ok()) return Fail(InFlag("--largest", given.status()));
    if (*given < kLeast) {
      return Fail(absl::InvalidArgumentError("--largest: expected at least 8 bytes"));
    }
    largest = *given;
  }
  const absl::StatusOr<std::string> program = FindProgram("train-bench");
  if (!program.ok()) return Fail(program.status());
  LaunchFlags launch = flags.launch;
  launch.name = "bench-allreduce";
  launch.no_python = true;
  if (!launch.nproc_per_node.has_value()) launch.nproc_per_node = WorkersHere();
  launch.program = {*program, flags.what, backend, absl::StrCat(largest)};
  return RunLaunch(launch);
}

}  // namespace trainctl

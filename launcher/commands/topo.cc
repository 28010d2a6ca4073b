// topo: what is connected to what on this node, or in a file, and the plan that follows. Talks to
// no daemon and no job.
#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/commands/nccl_environment.h"
#include "launcher/console.h"
#include "launcher/topology_picture.h"
#include "launcher/topology_table.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"
#include "runtime/topology/probe.h"
#include "runtime/topology/topology_text.h"
#include "runtime/topology/transport_plan.h"

namespace trainctl {
namespace {

absl::StatusOr<Topology> TopologyOf(const TopoFlags& flags) {
  if (!flags.from.has_value()) {
    return ProbeTopology();
  }
  constexpr size_t kMost = size_t{1} << 20;
  const absl::StatusOr<std::string> text = ReadFile(*flags.from, kMost);
  if (!text.ok())
    return absl::InvalidArgumentError(absl::StrCat("--from: ", text.status().message()));
  return ParseAnyTopology(*text, *flags.from);
}

std::string Problems(const Topology& topology) {
  std::string out;
  for (const std::string& problem : topology.problems) {
    absl::StrAppend(&out, out.empty() ? "\nseen\n" : "", "  - ", problem, "\n");
  }
  return out;
}

}  // namespace

int RunTopo(const TopoFlags& flags) {
  const absl::StatusOr<Topology> topology = TopologyOf(flags);
  if (!topology.ok()) return Fail(topology.status());
  PlanRequest request;
  request.nodes = {*topology};
  request.several_nodes = true;  // such as this one
  request.environment = NcclEnvironment();
  const TransportPlan plan = PlanTransport(request);
  if (flags.svg.has_value()) {
    const absl::Status written = ReplaceFile(*flags.svg, TopologyPicture(*topology));
    if (!written.ok()) return Fail(written);
  }
  Console console;
  if (flags.json || flags.yaml) {
    nlohmann::ordered_json document = TopologyDocument(*topology);
    document["plan"] = PlanDocument(plan);
    console.Out(flags.json ? absl::StrCat(JsonText(document), "\n") : YamlText(document));
    return kExitDone;
  }
  console.Out(absl::StrCat(TopologyTable(*topology), Problems(*topology)));
  if (flags.explain) {
    console.Out(absl::StrCat("\n", ExplainPlan(plan)));
  }
  return kExitDone;
}

}  // namespace trainctl

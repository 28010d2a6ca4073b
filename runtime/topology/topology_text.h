// A topology as text: one document, written as JSON (`trainctl topo --json`) or YAML, and read from
// either. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_TOPOLOGY_TEXT_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_TOPOLOGY_TEXT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/topology/topology.h"

namespace trainctl {

inline constexpr int kTopologySchema = 1;
// More than any machine has; a file that claims more is refused.
inline constexpr size_t kMostGpus = 64;
inline constexpr size_t kMostNics = 128;

// Keys as in CLI: schema, node, …, gpus, nics, links. What is unknown is left out.
nlohmann::ordered_json TopologyDocument(const Topology& topology);
std::string YamlText(const nlohmann::ordered_json& document);

// Reads what TopologyDocument gives, as JSON or YAML; a key "plan" is skipped, since a plan follows
// from the rest. INVALID_ARGUMENT "FILE:LINE: …" names the first thing that is wrong, an unknown
// key included.
absl::StatusOr<Topology> ParseTopology(const std::string& text, absl::string_view file);

// Reads any form that --from takes: ours, or NCCL's XML (nccl_xml.h), told apart by its first
// character.
absl::StatusOr<Topology> ParseAnyTopology(const std::string& text, absl::string_view file);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_TOPOLOGY_TEXT_H_

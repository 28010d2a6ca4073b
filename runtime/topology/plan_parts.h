// The decisions of a transport plan, one by one. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_PLAN_PARTS_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_PLAN_PARTS_H_

#include <string>
#include <vector>

#include "runtime/topology/transport_plan.h"

namespace trainctl {

// A GPU that workers can use, or a slice of one.
struct Unit {
  const Gpu* gpu = nullptr;
  const MigSlice* slice = nullptr;  // nullptr: the whole GPU
};

bool IsUsable(const Gpu& gpu);
std::vector<Unit> UnitsOf(const Topology& topology);  // by index
// In the order in which a ring crosses the fewest far links; `reason` says why.
std::vector<Unit> RingOrder(const Topology& topology, std::string* reason);

// REQUIRES: `ring` is RingOrder's.
TransportChoice ChooseWithin(const Topology& topology, const std::vector<Unit>& ring);

// The RDMA ports that a job should use: active ones of the fastest kind. Pointers into `topology`.
std::vector<const Nic*> ChosenPorts(const Topology& topology);
TransportChoice ChooseBetween(const std::vector<Topology>& nodes);

NodePlan PlanNode(const Topology& topology, const std::vector<Unit>& ring,
                  const std::string& order_reason, bool with_nics);

std::vector<NcclSetting> ChooseSettings(const PlanRequest& request, const TransportChoice& within,
                                        const TransportChoice& between);
GradientPlan PlanGradients(const PlanRequest& request, const TransportChoice& within,
                           const TransportChoice& between);
std::vector<std::string> FindProblems(const PlanRequest& request, const TransportChoice& between);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_PLAN_PARTS_H_

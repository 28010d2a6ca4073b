// From what every node has to how a job's workers talk: transport, order of local ranks, NIC and
// CPUs of each, NCCL's settings, precision and buckets of gradients; each with its reason. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_TRANSPORT_PLAN_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_TRANSPORT_PLAN_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/topology/topology.h"

namespace trainctl {

struct PlanRequest {
  std::vector<Topology> nodes;  // not empty
  bool several_nodes = false;   // plan the network, also for a single topology
  bool deterministic = false;   // the same bits in every run
  int nccl_version = 0;         // 22105 is 2.21.5; 0: unknown
  // The user's own NCCL_* variables, which always win.
  std::map<std::string, std::string> environment;
};

enum class Transport {
  kNone,  // nothing to exchange
  kCpu,   // no GPU: our own collectives
  kSharedMemory,
  kPcie,
  kNvlink,
  kNvSwitch,
  kTcp,
  kRoce,
  kEfa,
  kInfiniBand,
};
const char* WordOf(Transport transport);

struct TransportChoice {
  Transport transport = Transport::kNone;
  double gigabytes_per_second = 0;  // what a ring should reach, estimated; 0: cannot be told
  std::string reason;
};

struct LocalRank {
  std::string device;  // "GPU3", "GPU0 1g.10gb"
  std::string uuid;    // of GPU or MIG slice; empty: unknown
  std::string nic;     // empty: none
  PciPath nic_path = PciPath::kUnknown;
  int numa = -1;
  std::string cpus;  // empty: not bound
};

struct NodePlan {
  std::string node;
  std::vector<LocalRank> ranks;
  std::string order_reason;
  std::string nic_reason;
  std::string binding_reason;
};

struct NcclSetting {
  enum class Who { kSet, kLeftAlone, kYours };
  Who who = Who::kLeftAlone;
  std::string name;
  std::string value;  // empty if left alone
  std::string reason;
};

struct GradientPlan {
  std::string precision;  // "fp32" or "bf16", on the wire
  std::string precision_reason;
  int64_t bucket_bytes = 0;
  std::string bucket_reason;
};

struct TransportPlan {
  TransportChoice within;   // one node
  TransportChoice between;  // nodes
  std::vector<NodePlan> nodes;
  std::vector<NcclSetting> settings;
  GradientPlan gradients;
  std::vector<std::string> problems;  // what will fail or be slow, and what to do about it
};

TransportPlan PlanTransport(const PlanRequest& request);

std::string ExplainPlan(const TransportPlan& plan);
nlohmann::ordered_json PlanDocument(const TransportPlan& plan);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_TRANSPORT_PLAN_H_

// What the children of a preflight said, as findings with reason and remedy. Pure.
#ifndef TRAINCTL_LAUNCHER_PREFLIGHT_FINDINGS_H_
#define TRAINCTL_LAUNCHER_PREFLIGHT_FINDINGS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/topology/transport_plan.h"

namespace trainctl {

// Of one child (runtime/preflight/checks.h has its lines).
struct ChildOutput {
  enum class End { kDone, kFailed, kHung };
  End end = End::kDone;
  std::string how;   // "signal 11", "no sign of life for 20 s"; empty if done
  std::string text;  // what it wrote
};

struct PreflightGpu {
  int device = 0;    // CUDA's number
  std::string name;  // "GPU3", as the topology calls it
  std::string model;
  std::string pci;
  std::string uuid;
};

struct PreflightFinding {
  enum class Verdict { kRight, kSlow, kWrong, kHung, kFailed };
  Verdict verdict = Verdict::kRight;
  std::string check;  // "copy GPU0 to GPU1"
  std::string found;
  std::string remedy;               // empty: nothing to do
  double gigabytes_per_second = 0;  // 0: not measured
};
const char* WordOf(PreflightFinding::Verdict verdict);

struct PreflightResult {
  std::vector<PreflightGpu> gpus;
  std::vector<PreflightFinding> findings;
  std::vector<std::string> bad_peer_access;  // as in a Topology
  std::string nccl;                          // version; empty: unknown
};

// The GPUs; the status is what the child said instead.
absl::StatusOr<std::vector<PreflightGpu>> ReadGpus(const ChildOutput& output,
                                                   const Topology& topology);
void AddMemory(const ChildOutput& output, PreflightResult* result);
// One child's. Returns how many pairs it got through, one that hung or failed included.
int AddCopies(const ChildOutput& output, const Topology& topology, PreflightResult* result);
// All ranks' of one all-reduce. `expected`: GB/s of the plan's ring, 0: unknown. `without_peers`:
// it ran with NCCL_P2P_DISABLE=1 after one that did not come out.
PreflightFinding ReadCollective(const std::vector<ChildOutput>& outputs, double expected,
                                bool without_peers, PreflightResult* result);

// Whether workers may start as things are: `peers_off` says that NCCL_P2P_DISABLE=1 is set.
bool IsFit(const PreflightResult& result, bool peers_off);

std::string PreflightText(const PreflightResult& result, const TransportPlan& plan, bool fit);
nlohmann::ordered_json PreflightDocument(const PreflightResult& result, const TransportPlan& plan,
                                         bool fit);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_PREFLIGHT_FINDINGS_H_

// What each worker of a node gets, and the part of it that is in its environment. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_WORKER_BINDING_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_WORKER_BINDING_H_

#include <map>
#include <string>
#include <vector>

namespace trainctl {

struct GpuWorker {
  std::string device;  // "GPU3", "GPU0 1g.10gb"
  std::string uuid;
  int numa = -1;          // where its memory is preferred; -1: not said
  std::vector<int> cpus;  // empty: not bound
};

struct WorkerBinding {
  std::vector<GpuWorker> workers;               // by local rank; empty: none gets a GPU from us
  bool slices = false;                          // of MIG: a process sees one only, as its device 0
  std::map<std::string, std::string> settings;  // of NCCL, for whose user has not set them
};

// Environments are lists of "NAME=value".

// All workers see the same devices, in the order of their local ranks.
void BindCommon(const WorkerBinding& binding, std::vector<std::string>* common);
// What comes on top for one of them: where each is to believe it is alone (`own` then has its
// device already), or has a slice of a GPU, it sees its own as device 0.
void BindOwn(const WorkerBinding& binding, int local_rank, std::vector<std::string>* own);
// Adds what the environment does not have.
void AddDefaults(const std::vector<std::string>& defaults, std::vector<std::string>* environment);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_WORKER_BINDING_H_

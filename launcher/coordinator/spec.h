// What the user asked, after flags, environment and job file are merged and checked. A value; the
// coordinator never changes it.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_SPEC_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/time.h"

namespace trainctl {

// What a job can have at most.
inline constexpr int kMaxNodes = 16384;
inline constexpr int kMaxWorkersPerNode = 1024;

// JobSpec::workers_per_node: as many workers on each node as it has slots.
inline constexpr int kEverySlot = 0;

inline constexpr uint64_t kDefaultLogQuota = uint64_t{10} << 30;

struct JobSpec {
  std::string job_id;                // unique; names the job's folder and sockets
  std::string name;                  // what the user calls it; need not be unique
  std::vector<std::string> command;  // argv; "${local_rank}" in an argument is replaced per worker
  std::string cwd;
  std::vector<std::string> env;  // "NAME=value": the front end's environment and the job file's
  std::string role = "default";
  std::string local_rank_argument;  // non-empty: append "--NAME=N" to the worker's arguments
  bool virtual_local_rank = false;

  int min_nodes = 1;
  int max_nodes = 1;
  int spares = 0;            // nodes beyond max_nodes that may join and wait for a place
  int workers_per_node = 1;  // or kEverySlot; a node with fewer slots is not used
  // Names of the nodes that are expected, if they are known. Others may join, too.
  std::vector<std::string> nodes;
  bool ranks_follow_nodes = false;  // ranks are given in the order of `nodes`

  int max_restarts = 0;      // budget for the script's own failures
  int window_restarts = 10;  // restarts of any class allowed within restart_window
  Duration restart_window = seconds(3600);
  int no_progress_epochs = 3;  // stop after so many epochs in a row without a new step

  Duration grace = seconds(30);
  Duration lease = seconds(10);
  Duration join_timeout = seconds(600);
  Duration orphan_timeout = seconds(60);  // negative: no limit

  Duration hang_timeout{0};  // 0: chosen from the length of steps; negative: no hang is looked for

  // Of all workers on a node together, with what they start; 0: none.
  uint64_t memory_limit = 0;  // bytes
  uint64_t process_limit = 0;
  // Of the logs of all epochs on a node; 0: no limit.
  uint64_t log_quota = kDefaultLogQuota;

  std::vector<std::string> gpus;  // UUIDs, locked for the job on its node; empty: none is used
  // What invited nodes are to give to their workers.
  struct GpuWish {
    bool wanted = false;
    std::string gpus;     // as --gpus; empty: all that may be used
    std::string binding;  // as --numa-binding
    bool share = false;   // also GPUs that others use
  };
  GpuWish gpu_wish;
  std::string transport_plan;  // of the node where it was started, as JSON; empty: none

  // Nodes other than the coordinator's own.
  std::string listen;    // "n1:29500", where they reach the coordinator; empty: none may come
  std::string head;      // name of the coordinator's own node
  std::string claim;     // what the same command says of itself on every node
  std::string key_file;  // by which they prove who they are, or instead:
  std::string tls_certificate, tls_private_key, tls_authority;
  std::vector<int> node_slots;  // of `nodes`; empty, or one for each
  int daemon_port = 0;  // of the daemons of `nodes`, which are invited; 0: they come unasked

  std::string job_folder;         // journal, report, logs; absolute
  std::string log_folder;         // LOG_FOLDER/EPOCH/RANK/…; absolute
  std::string checkpoint_folder;  // absolute; empty: the job has none
  int checkpoint_keep = 3;

  bool preemptible = false;  // SIGTERM to its front ends says that its nodes are wanted back
  bool propagate_exit_code = false;
  bool requeue_status = false;  // exit statuses 75 and 93 (CLI.md) instead of 1
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_SPEC_H_

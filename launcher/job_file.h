// The job file: what a user writes instead of flags. Pure but for ReadJobFile.
#ifndef TRAINCTL_LAUNCHER_JOB_FILE_H_
#define TRAINCTL_LAUNCHER_JOB_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/flag_value.h"

namespace trainctl {

inline constexpr int64_t kMostProcesses = 4'194'304;  // as many as Linux can number

struct JobFile {
  std::optional<std::string> name;
  std::optional<std::string> workers;  // as --nproc-per-node
  std::optional<std::string> hosts;    // as --nodes
  std::optional<std::string> nnodes;   // as --nnodes
  std::optional<std::string> spares;   // as --spares
  std::vector<std::string> command;    // empty: the built-in trainer with `train`
  // The trainer's configuration as JSON text, with the keys of the job file; empty without `train`.
  // Still lacks checkpoint and plan, which flags may override.
  std::string train;
  std::optional<std::string> checkpoint_dir;
  std::optional<int64_t> checkpoint_every;  // steps
  std::optional<int> checkpoint_keep;
  std::optional<int> max_restarts;
  std::optional<RestartWindow> restart_window;
  bool preemptible = false;           // as --preemptible
  uint64_t memory_limit = 0;          // as --memory-limit; 0: none is given
  uint64_t process_limit = 0;         // as --process-limit
  std::optional<uint64_t> log_quota;  // as --log-quota; 0: no limit
  std::vector<std::pair<std::string, std::string>> env;
};

// INVALID_ARGUMENT "FILE:LINE: …" names the key, what was found and what was expected.
absl::StatusOr<JobFile> ParseJobFile(const std::string& text, absl::string_view file);
absl::StatusOr<JobFile> ReadJobFile(const std::string& path);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_JOB_FILE_H_

#include "launcher/launch_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/gpu_request.h"
#include "launcher/program_choice.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

constexpr int64_t kMostRestarts = 1'000'000;
constexpr int kTrainerRestarts = 3;
constexpr int kDaemonPort = 7676;
constexpr int64_t kMostSpares = 1000;

// Says which flag (or key) a value's problem belongs to.
#define ASSIGN_FLAG(target, flag, value, parse)  \
  do {                                           \
    if ((value).has_value()) {                   \
      auto parsed_ = (parse);                    \
      if (!parsed_.ok()) {                       \
        return InFlag((flag), parsed_.status()); \
      }                                          \
      (target) = *std::move(parsed_);            \
    }                                            \
  } while (false)

std::string EnvValue(const std::vector<std::string>& env, absl::string_view name) {
  for (const std::string& entry : env) {
    if (absl::StartsWith(entry, name) && entry.size() > name.size() && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return "";
}

void SetEnv(const std::string& name, const std::string& value, std::vector<std::string>* env) {
  const std::string prefix = absl::StrCat(name, "=");
  env->erase(
      std::remove_if(env->begin(), env->end(),
                     [&](const std::string& entry) { return absl::StartsWith(entry, prefix); }),
      env->end());
  env->push_back(absl::StrCat(prefix, value));
}

std::string Absolute(const std::string& cwd, const std::string& path) {
  return absl::StartsWith(path, "/") ? path : JoinPath(cwd, path);
}

// For a flag that is accepted and has no effect: only values that make sense are.
absl::Status CheckNumber(absl::string_view flag, const std::optional<std::string>& value,
                         double max) {
  if (!value.has_value()) {
    return absl::OkStatus();
  }
  return InFlag(flag, ParseNumber(*value, 0, max).status());
}

// Flags of torchrun that have no effect here: a value that could not work must not pass.
absl::Status CheckUnusedFlags(const LaunchFlags& flags) {
  RETURN_IF_ERROR(CheckNumber("--monitor-interval", flags.monitor_interval, 1e9));
  RETURN_IF_ERROR(CheckNumber("--master-port", flags.master_port, 65535));
  if (flags.start_method.has_value() && *flags.start_method != "spawn" &&
      *flags.start_method != "fork" && *flags.start_method != "forkserver") {
    return absl::InvalidArgumentError(absl::StrCat("--start-method: found \"", *flags.start_method,
                                                   "\", expected spawn, fork or forkserver"));
  }
  return absl::OkStatus();
}

// --nodes is a list, or the name of a file that holds one.
absl::StatusOr<std::vector<ListedNode>> ReadNodes(const std::string& text, const std::string& cwd) {
  const absl::StatusOr<std::string> file = ReadFile(Absolute(cwd, text), kMaxListBytes);
  absl::StatusOr<std::vector<ListedNode>> nodes =
      file.ok() ? ParseHostFile(*file) : ParseHostList(text);
  if (!nodes.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--nodes", file.ok() ? absl::StrCat(" ", text) : "", ": ", nodes.status().message()));
  }
  return nodes;
}

absl::Status MergeTls(const LaunchFlags& flags, const std::string& cwd, TlsFiles* tls) {
  const int given = (flags.tls_cert ? 1 : 0) + (flags.tls_key ? 1 : 0) + (flags.tls_ca ? 1 : 0);
  if (given != 0 && given != 3) {
    return absl::InvalidArgumentError("--tls-cert, --tls-key and --tls-ca go together");
  }
  if (given == 3 && flags.key.has_value()) {
    return absl::InvalidArgumentError("--key and --tls-cert: give one of them");
  }
  if (given == 3) {
    tls->certificate = Absolute(cwd, *flags.tls_cert);
    tls->private_key = Absolute(cwd, *flags.tls_key);
    tls->authority = Absolute(cwd, *flags.tls_ca);
  } else if (flags.key.has_value()) {
    tls->key = Absolute(cwd, *flags.key);
  }
  return absl::OkStatus();
}

// Which nodes the job has, and which of them this is.
absl::Status MergeNodes(LaunchFlags flags, const JobFile& file, const Surroundings& surroundings,
                        LaunchRequest* request) {
  if (!flags.nodes.has_value()) flags.nodes = file.hosts;
  if (!flags.nnodes.has_value()) flags.nnodes = file.nnodes;
  if (!flags.spares.has_value()) flags.spares = file.spares;
  std::vector<ListedNode> listed;
  if (flags.nodes.has_value()) {
    ASSIGN_OR_RETURN(listed, ReadNodes(*flags.nodes, surroundings.cwd));
  }
  ASSIGN_OR_RETURN(request->role,
                   DecideRole(flags, surroundings.scheduler, listed, surroundings.is_own_name));
  RETURN_IF_ERROR(MergeTls(flags, surroundings.cwd, &request->tls));
  request->scheduler = surroundings.scheduler;
  const NodeRole& role = request->role;
  JobSpec& spec = request->spec;
  spec.min_nodes = role.min_nodes;
  spec.max_nodes = role.max_nodes;
  if (!role.several) return absl::OkStatus();
  spec.listen = role.endpoint.ToString();
  spec.claim = role.claim;
  spec.nodes = role.nodes;
  const auto surplus = static_cast<int64_t>(role.nodes.size()) - role.max_nodes;
  int64_t spares = std::max<int64_t>(surplus, 0);
  ASSIGN_FLAG(spares, "--spares", flags.spares, ParseInteger(*flags.spares, 0, kMostSpares));
  spec.spares = static_cast<int>(spares);
  if (role.invited.empty()) return absl::OkStatus();
  int64_t port = kDaemonPort;
  ASSIGN_FLAG(port, "--daemon-port", flags.daemon_port, ParseInteger(*flags.daemon_port, 1, 65535));
  spec.daemon_port = static_cast<int>(port);
  spec.ranks_follow_nodes = true;
  return absl::OkStatus();
}

absl::StatusOr<int> CountWorkers(const std::string& text, const Surroundings& surroundings) {
  if (text == "cpu" || text == "auto") {
    return surroundings.cpus;
  }
  absl::StatusOr<int64_t> count = ParseInteger(text, 1, kMaxWorkersPerNode);
  if (!count.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(count.status().message(), ", or gpu, cpu or auto"));
  }
  return static_cast<int>(*count);
}

// Nodes of a job may have different numbers of devices or processors; a number is one for all.
absl::Status MergeWorkers(const LaunchFlags& flags, const JobFile& file,
                          const Surroundings& surroundings, LaunchRequest* request) {
  // Several tasks on a node are so many workers.
  const int tasks = request->scheduler.has_value() ? request->scheduler->local_tasks : 1;
  const std::string text =
      flags.nproc_per_node.value_or(file.workers.value_or(absl::StrCat(tasks)));
  const bool given = flags.nproc_per_node.has_value() || file.workers.has_value();
  absl::StatusOr<bool> on_gpus = MergeGpus(flags, given ? text : "", surroundings, request);
  RETURN_IF_ERROR(on_gpus.status());
  absl::StatusOr<int> count = *on_gpus ? static_cast<int>(request->gpus->workers.workers.size())
                                       : CountWorkers(text, surroundings);
  if (!count.ok()) {
    return InFlag(flags.nproc_per_node.has_value() ? "--nproc-per-node" : "nodes.workers",
                  count.status());
  }
  OwnPart& part = request->role.part;
  const bool listed = std::any_of(request->role.invited.begin(), request->role.invited.end(),
                                  [](const ListedNode& node) { return node.slots > 0; });
  if (listed && given) {
    return absl::InvalidArgumentError(
        "--nodes gives slots (NODE:SLOTS), so neither --nproc-per-node nor nodes.workers may say "
        "how "
        "many workers there are");
  }
  const bool by_node = *on_gpus || text == "gpu" || text == "cpu" || text == "auto" || listed ||
                       (tasks > 1 && !given);
  request->spec.workers_per_node = request->role.several && by_node ? kEverySlot : *count;
  if (part.slots == 0) part.slots = *count;
  // Of other nodes it is not known how many GPUs they have.
  const int others =
      *on_gpus && !absl::ascii_isdigit(static_cast<unsigned char>(text[0])) ? kEverySlot : *count;
  for (const ListedNode& node : request->role.invited) {
    request->spec.node_slots.push_back(node.slots > 0 ? node.slots : others);
  }
  return absl::OkStatus();
}

absl::Status MergeTimes(const LaunchFlags& flags, bool in_scheduler, JobSpec* spec) {
  if (flags.rdzv_conf.has_value()) {
    for (absl::string_view entry : absl::StrSplit(*flags.rdzv_conf, ',', absl::SkipEmpty())) {
      const std::vector<std::string> pair = absl::StrSplit(entry, absl::MaxSplits('=', 1));
      if (pair.size() != 2) {
        return absl::InvalidArgumentError(
            absl::StrCat("--rdzv-conf: found \"", entry, "\", expected KEY=VALUE,…"));
      }
      if (pair[0] == "join_timeout") {
        absl::StatusOr<Duration> timeout = ParseDuration(pair[1]);
        if (!timeout.ok()) {
          return InFlag("--rdzv-conf join_timeout", timeout.status());
        }
        spec->join_timeout = *timeout;
      }
    }
  }
  ASSIGN_FLAG(spec->join_timeout, "--join-timeout", flags.join_timeout,
              ParseDuration(*flags.join_timeout));
  ASSIGN_FLAG(spec->grace, "--grace", flags.grace, ParseDuration(*flags.grace));
  ASSIGN_FLAG(spec->lease, "--lease", flags.lease, ParseDuration(*flags.lease));
  if (spec->lease < seconds(1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lease: found \"", *flags.lease, "\", expected at least 1s"));
  }
  // A scheduler's step is over when its processes are; nothing may outlive it.
  if (in_scheduler) spec->orphan_timeout = Duration(0);
  if (flags.hang_timeout == "none") {
    spec->hang_timeout = Duration(-1);
  } else {
    ASSIGN_FLAG(spec->hang_timeout, "--hang-timeout", flags.hang_timeout,
                ParseDuration(*flags.hang_timeout));
  }
  if (flags.detach || flags.orphan_timeout == "none") {
    spec->orphan_timeout = Duration(-1);
  } else {
    ASSIGN_FLAG(spec->orphan_timeout, "--orphan-timeout", flags.orphan_timeout,
                ParseDuration(*flags.orphan_timeout));
  }
  return absl::OkStatus();
}

absl::Status MergeRestarts(const LaunchFlags& flags, const JobFile& file, JobSpec* spec) {
  spec->max_restarts = file.max_restarts.value_or(file.train.empty() ? 0 : kTrainerRestarts);
  int64_t restarts = spec->max_restarts;
  ASSIGN_FLAG(restarts, "--max-restarts", flags.max_restarts,
              ParseInteger(*flags.max_restarts, 0, kMostRestarts));
  spec->max_restarts = static_cast<int>(restarts);
  RestartWindow window =
      file.restart_window.value_or(RestartWindow{spec->window_restarts, spec->restart_window});
  ASSIGN_FLAG(window, "--restart-window", flags.restart_window,
              ParseRestartWindow(*flags.restart_window));
  spec->window_restarts = window.restarts;
  spec->restart_window = window.within;
  return absl::OkStatus();
}

absl::Status MergeLimits(const LaunchFlags& flags, const JobFile& file, JobSpec* spec) {
  spec->memory_limit = file.memory_limit;
  spec->process_limit = file.process_limit;
  ASSIGN_FLAG(spec->memory_limit, "--memory-limit", flags.memory_limit,
              ParseSize(*flags.memory_limit));
  int64_t processes = static_cast<int64_t>(spec->process_limit);
  ASSIGN_FLAG(processes, "--process-limit", flags.process_limit,
              ParseInteger(*flags.process_limit, 1, kMostProcesses));
  spec->process_limit = static_cast<uint64_t>(processes);
  spec->log_quota = file.log_quota.value_or(spec->log_quota);
  ASSIGN_FLAG(spec->log_quota, "--log-quota", flags.log_quota, ParseQuota(*flags.log_quota));
  return absl::OkStatus();
}

absl::Status MergeConsole(const LaunchFlags& flags, ConsoleChoice* console) {
  ASSIGN_FLAG(console->redirects, "--redirects", flags.redirects,
              StreamChoice::Parse(*flags.redirects));
  ASSIGN_FLAG(console->tee, "--tee", flags.tee, StreamChoice::Parse(*flags.tee));
  if (flags.local_ranks_filter.has_value() && !flags.local_ranks_filter->empty()) {
    ASSIGN_FLAG(console->local_ranks, "--local-ranks-filter", flags.local_ranks_filter,
                ParseRankList(*flags.local_ranks_filter));
  }
  return absl::OkStatus();
}

bool IsPrintableAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isprint(static_cast<unsigned char>(c)); });
}

absl::Status MergeNames(const LaunchFlags& flags, const JobFile& file, JobSpec* spec) {
  std::string name = NameOfProgram(flags.program);
  if (flags.name.has_value()) {
    name = *flags.name;
  } else if (flags.rdzv_id.has_value() && *flags.rdzv_id != "none") {
    name = *flags.rdzv_id;
  } else if (file.name.has_value()) {
    name = *file.name;
  }
  spec->name = IsPrintableAscii(name) && !name.empty() ? name.substr(0, 200) : IdStem(name);
  spec->role = flags.role.value_or("default");
  if (spec->role.empty() || !IsPrintableAscii(spec->role)) {
    return absl::InvalidArgumentError("--role: expected a name of printable ASCII characters");
  }
  return absl::OkStatus();
}

// Id and folders. The folders are made by whoever starts the job.
void PlaceJob(const LaunchFlags& flags, const Surroundings& surroundings, JobSpec* spec) {
  spec->job_id = absl::StrCat(IdStem(spec->name), "-", surroundings.id_suffix);
  spec->job_folder = JobFolder(surroundings.state_folder, spec->job_id);
  spec->log_folder = flags.log_dir.has_value()
                         ? JoinPath(Absolute(surroundings.cwd, *flags.log_dir), spec->job_id)
                         : JoinPath(spec->job_folder, "logs");
}

// The configuration of train-worker: the job file's, with what flags and the job's place add.
absl::StatusOr<std::string> TrainConfig(const LaunchFlags& flags, const JobFile& file,
                                        const Surroundings& surroundings, const JobSpec& spec) {
  nlohmann::ordered_json config = ParseOrderedJson(file.train);
  std::optional<int64_t> every = file.checkpoint_every;
  ASSIGN_FLAG(every, "--checkpoint-every", flags.checkpoint_every,
              ParseSteps(*flags.checkpoint_every));
  if (!spec.checkpoint_folder.empty()) {
    config["checkpoint"] = {{"dir", spec.checkpoint_folder}, {"keep", spec.checkpoint_keep}};
    if (every.has_value()) {
      config["checkpoint"]["every_steps"] = *every;
    }
  } else if (every.has_value()) {
    return absl::InvalidArgumentError(
        "a checkpoint every so many steps is asked for, but no folder is given: "
        "--checkpoint-dir DIR, or checkpoint.dir in the job file");
  }
  if (flags.plan.has_value()) {
    config["plan_in"] = Absolute(surroundings.cwd, *flags.plan);
  }
  return JsonText(config, 2) + "\n";
}

absl::Status ChooseCommand(const LaunchFlags& flags, const JobFile* file,
                           const Surroundings& surroundings, LaunchRequest* request) {
  JobSpec& spec = request->spec;
  const std::string path = EnvValue(spec.env, "PATH");
  if (file == nullptr) {
    const ProgramPlace place{path, EnvValue(spec.env, "PYTHON_EXEC")};
    ASSIGN_OR_RETURN(spec.command,
                     ChooseProgram(flags.program, flags.module, flags.no_python, place));
  } else if (flags.program.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("a job file takes no arguments, found \"",
                                                   flags.program[1], "\" after ", flags.program[0],
                                                   "; flags go before it"));
  } else if (!file->command.empty()) {
    spec.command = file->command;
    RETURN_IF_ERROR(CheckExecutable(spec.command.front(), path));
  } else {
    if (surroundings.trainer.empty()) {
      return absl::NotFoundError(
          "the built-in trainer (train-worker) is not installed beside trainctl");
    }
    ASSIGN_OR_RETURN(request->train_config, TrainConfig(flags, *file, surroundings, spec));
    // Other nodes need not see the job's folder.
    spec.command = {surroundings.trainer};
    if (request->role.several) {
      spec.command.insert(spec.command.end(), {"--config-text", request->train_config});
    } else {
      spec.command.insert(spec.command.end(),
                          {"--config", JoinPath(spec.job_folder, "train.json")});
    }
  }
  if (request->train_config.empty() &&
      (flags.checkpoint_every.has_value() || flags.plan.has_value())) {
    return absl::InvalidArgumentError(
        "--checkpoint-every and --plan are for the built-in trainer; a program decides itself when "
        "it saves");
  }
  return absl::OkStatus();
}

}  // namespace

bool ConsoleChoice::Shows(int local_rank, int stream) const {
  if (local_ranks.has_value() &&
      !std::binary_search(local_ranks->begin(), local_ranks->end(), local_rank)) {
    return false;
  }
  return !redirects.Has(local_rank, stream) || tee.Has(local_rank, stream);
}

bool NamesJobFile(const LaunchFlags& flags) {
  return !flags.module && !flags.no_python && !flags.program.empty() &&
         (absl::EndsWith(flags.program.front(), ".yaml") ||
          absl::EndsWith(flags.program.front(), ".yml"));
}

std::string IdStem(absl::string_view name) {
  std::string stem;
  // With what is drawn anew behind it, an id stays within the 40 bytes that socket paths leave it.
  for (char c : name.substr(0, 33)) {
    stem += absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-'
                ? c
                : '-';
  }
  // A leading dot would hide the folder, a leading hyphen look like a flag.
  const size_t start = stem.find_first_not_of(".-");
  return start == std::string::npos ? "job" : stem.substr(start);
}

absl::StatusOr<LaunchRequest> MergeLaunch(const LaunchFlags& flags, const JobFile* file,
                                          const Surroundings& surroundings) {
  static const JobFile kNoFile;
  const JobFile& defaults = file == nullptr ? kNoFile : *file;
  LaunchRequest request;
  JobSpec& spec = request.spec;
  spec.cwd = surroundings.cwd;
  spec.env = surroundings.env;
  for (const auto& [name, value] : defaults.env) {
    SetEnv(name, value, &spec.env);
  }
  RETURN_IF_ERROR(CheckUnusedFlags(flags));
  RETURN_IF_ERROR(MergeNodes(flags, defaults, surroundings, &request));
  RETURN_IF_ERROR(MergeWorkers(flags, defaults, surroundings, &request));
  RETURN_IF_ERROR(MergeTimes(flags, request.role.in_scheduler, &spec));
  RETURN_IF_ERROR(MergeRestarts(flags, defaults, &spec));
  RETURN_IF_ERROR(MergeLimits(flags, defaults, &spec));
  RETURN_IF_ERROR(MergeConsole(flags, &request.console));

  RETURN_IF_ERROR(MergeNames(flags, defaults, &spec));
  spec.local_rank_argument = flags.local_rank_arg.value_or("");
  spec.virtual_local_rank =
      flags.virtual_local_rank || (request.gpus.has_value() && request.gpus->workers.slices);
  spec.requeue_status = flags.requeue_status || request.role.in_scheduler;
  spec.preemptible = flags.preemptible || defaults.preemptible;
  spec.propagate_exit_code = flags.propagate_exit_code;
  PlaceJob(flags, surroundings, &spec);
  std::optional<std::string> checkpoints = defaults.checkpoint_dir;
  if (flags.checkpoint_dir.has_value()) {
    checkpoints = flags.checkpoint_dir;
  }
  if (checkpoints.has_value()) {
    spec.checkpoint_folder = Absolute(surroundings.cwd, *checkpoints);
  }
  spec.checkpoint_keep = defaults.checkpoint_keep.value_or(spec.checkpoint_keep);
  RETURN_IF_ERROR(ChooseCommand(flags, file, surroundings, &request));
  return request;
}

}  // namespace trainctl

#include "launcher/commands/dry_run.h"

#include <unistd.h>

#include <climits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/coordinator/worker_env.h"
#include "launcher/progress_text.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

// The first epoch as it would be formed here. The port is chosen when the job runs.
StartWorkers PlanHere(const LaunchRequest& request) {
  const JobSpec& spec = request.spec;
  char node[HOST_NAME_MAX + 1] = {};
  gethostname(node, sizeof node - 1);
  EpochFormed epoch;
  epoch.nodes = {{node, "", "127.0.0.1", 0, request.role.part.slots}};
  epoch.master_address = "127.0.0.1";
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  StartWorkers start = PlanWorkers(spec, epoch, node, cores);
  BindCommon(request.role.part.binding, &start.env);
  for (WorkerLaunch& worker : start.workers) {
    BindOwn(request.role.part.binding, worker.local_rank, &worker.env);
  }
  return start;
}

// Common and own variables of a worker: the later one wins, as it does for the worker.
Json Environment(const StartWorkers& start, const WorkerLaunch& worker) {
  Json env = Json::object();
  for (const std::vector<std::string>* part : {&start.env, &worker.env}) {
    for (const std::string& entry : *part) {
      const std::vector<std::string> pair = absl::StrSplit(entry, absl::MaxSplits('=', 1));
      env[pair[0]] = pair.size() == 2 ? pair[1] : "";
    }
  }
  return env;
}

std::string Quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-+=.,/:@%") == std::string::npos;
  if (plain) {
    return word;
  }
  std::string quoted = "'";
  for (char c : word) {
    absl::StrAppend(&quoted, c == '\'' ? "'\\''" : std::string(1, c));
  }
  return quoted + "'";
}

std::string ShellCommand(const std::vector<std::string>& argv) {
  return absl::StrJoin(argv, " ",
                       [](std::string* out, const std::string& word) { *out += Quoted(word); });
}

std::string PlanText(const LaunchRequest& request, const StartWorkers& start) {
  const JobSpec& spec = request.spec;
  std::string text = absl::StrCat(
      "job          ", spec.job_id, " (an example: the last part is drawn anew)\n", "node         ",
      start.node, ", ", CountText(static_cast<int64_t>(start.workers.size()), "worker"), "\n",
      "folder       ", spec.cwd, "\n", "logs         ", spec.log_folder, "\n", "checkpoints  ",
      spec.checkpoint_folder.empty() ? "none" : spec.checkpoint_folder, "\n", "restarts     ",
      spec.max_restarts, " for the program's own failures; ", spec.window_restarts,
      " of any cause in ", ToSeconds(spec.restart_window), " s\n", "grace        ",
      ToSeconds(spec.grace), " s from SIGTERM to SIGKILL\n",
      "ports        chosen when the job starts, 0 here\n");
  if (!request.train_config.empty()) {
    absl::StrAppend(&text, "train.json   ", request.train_config);
  }
  if (request.gpus.has_value()) {
    absl::StrAppend(&text, "\n", ExplainPlan(request.gpus->plan));
  }
  for (const WorkerLaunch& worker : start.workers) {
    absl::StrAppend(&text, "\nrank ", worker.rank, ": ", ShellCommand(worker.argv), "\n");
    const Json env = Environment(start, worker);
    for (const auto& [name, value] : env.items()) {
      absl::StrAppend(&text, "  ", name, "=", Quoted(value.get<std::string>()), "\n");
    }
  }
  return text;
}

std::string PlanJson(const LaunchRequest& request, const StartWorkers& start) {
  const JobSpec& spec = request.spec;
  Json json = {{"schema", 1},
               {"type", "plan"},
               {"job", spec.job_id},
               {"name", spec.name},
               {"node", start.node},
               {"cwd", spec.cwd},
               {"log_folder", spec.log_folder},
               {"checkpoint_folder", spec.checkpoint_folder},
               {"max_restarts", spec.max_restarts},
               {"grace_seconds", ToSeconds(spec.grace)}};
  json["train"] = request.train_config.empty() ? Json() : ParseOrderedJson(request.train_config);
  json["transport_plan"] = request.gpus.has_value() ? PlanDocument(request.gpus->plan) : Json();
  json["workers"] = Json::array();
  for (const WorkerLaunch& worker : start.workers) {
    json["workers"].push_back({{"rank", worker.rank},
                               {"local_rank", worker.local_rank},
                               {"command", worker.argv},
                               {"env", Environment(start, worker)}});
  }
  return JsonText(json) + "\n";
}

}  // namespace

int DryRun(const LaunchRequest& request, bool json) {
  const StartWorkers start = PlanHere(request);
  Console console;
  console.Out(json ? PlanJson(request, start) : PlanText(request, start));
  return kExitDone;
}

}  // namespace trainctl

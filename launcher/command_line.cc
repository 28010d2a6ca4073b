#include "launcher/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/help_text.h"
#include "launcher/split_words.h"
#include "launcher/suggest.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

using OptionalText = std::optional<std::string>;

// A flag of torchrun: its name, also under PET_NAME in the environment. Of a flag that is given
// twice the last one counts, as it does there.
CLI::Option* TorchFlag(CLI::App* app, const std::string& names, OptionalText* target,
                       const char* environment, const char* value, const std::string& meaning) {
  return app->add_option(names, *target, meaning)
      ->envname(environment)
      ->type_name(value)
      ->take_last();
}
CLI::Option* TorchSwitch(CLI::App* app, const std::string& names, bool* target,
                         const char* environment, const std::string& meaning) {
  return app->add_flag(names, *target, meaning)->envname(environment);
}
void Flag(CLI::App* app, const std::string& names, OptionalText* target, const char* value,
          const std::string& meaning) {
  app->add_option(names, *target, meaning)->type_name(value)->take_last();
}

void AddTorchFlags(CLI::App* app, LaunchFlags* f) {
  app->option_defaults()->group("As torchrun (also from PET_*)");
  TorchFlag(app, "--nproc-per-node", &f->nproc_per_node, "PET_NPROC_PER_NODE", "N|gpu|cpu|auto",
            "Workers on each node (default 1)");
  TorchFlag(app, "--nnodes", &f->nnodes, "PET_NNODES", "N|MIN:MAX",
            "Number of nodes (default 1, or the scheduler's or the list's)");
  TorchFlag(app, "--max-restarts", &f->max_restarts, "PET_MAX_RESTARTS", "N",
            "Restarts for the program's own failures (default 0; 3 for the built-in trainer)");
  TorchSwitch(app, "-m,--module", &f->module, "PET_MODULE",
              "PROGRAM is a Python module: run python3 -u -m PROGRAM");
  TorchSwitch(app, "--no-python", &f->no_python, "PET_NO_PYTHON",
              "Execute PROGRAM itself even if it is called *.py");
  TorchFlag(app, "--role", &f->role, "PET_ROLE", "NAME",
            "ROLE_NAME of the workers (default default)");
  TorchFlag(app, "--log-dir", &f->log_dir, "PET_LOG_DIR", "DIR",
            "Write logs to DIR/JOB/EPOCH/RANK/ (default: in the job's folder)");
  TorchFlag(app, "-r,--redirects", &f->redirects, "PET_REDIRECTS", "N|RANK:N,…",
            "Streams that go to files only: 1 stdout, 2 stderr, 3 both");
  TorchFlag(app, "-t,--tee", &f->tee, "PET_TEE", "N|RANK:N,…",
            "Streams shown here as well as in files (default: all)");
  TorchFlag(app, "--local-ranks-filter", &f->local_ranks_filter, "PET_LOCAL_RANKS_FILTER", "LIST",
            "Show here only the output of these local ranks");
  TorchSwitch(app, "--standalone", &f->standalone, "PET_STANDALONE",
              "One node, whatever a scheduler says");
  TorchFlag(app, "--node-rank", &f->node_rank, "PET_NODE_RANK", "N",
            "Which of the nodes this is; 0 coordinates (default: the scheduler's, or any)");
  TorchFlag(app, "--master-addr", &f->master_addr, "PET_MASTER_ADDR", "ADDR",
            "Node 0's name or address, if --rdzv-endpoint is not given");
  TorchFlag(
      app, "--master-port", &f->master_port, "PET_MASTER_PORT", "PORT",
      "Where node 0 coordinates, with --master-addr (default 29500); workers get a fresh port "
      "in every epoch");
  TorchFlag(app, "--rdzv-backend", &f->rdzv_backend, "PET_RDZV_BACKEND", "NAME",
            "Accepted; one rendezvous serves them all");
  TorchFlag(app, "--rdzv-endpoint", &f->rdzv_endpoint, "PET_RDZV_ENDPOINT", "HOST:PORT",
            "Where node 0 coordinates, the same on every node (default port 29400)");
  TorchFlag(
      app, "--rdzv-id", &f->rdzv_id, "PET_RDZV_ID", "ID",
      "The job's name, if --name is not given; commands with different ids never join one job");
  TorchFlag(
      app, "--rdzv-conf", &f->rdzv_conf, "PET_RDZV_CONF", "K=V,…",
      "join_timeout=SECONDS counts as --join-timeout, is_host=0|1 says who coordinates; the rest "
      "is not needed");
  TorchFlag(app, "--local-addr", &f->local_addr, "PET_LOCAL_ADDR", "ADDR",
            "Address of this node to tell to the others (default: all it has; they choose)");
  TorchFlag(
      app, "--numa-binding", &f->numa_binding, "PET_NUMA_BINDING", "node|exclusive|none",
      "CPUs of a worker that has a GPU: those of the GPU's NUMA node (the default where there "
      "are several), its share of them, or all that are allowed here");
  TorchFlag(app, "--monitor-interval", &f->monitor_interval, "PET_MONITOR_INTERVAL", "SECONDS",
            "Accepted; a worker's end is seen at once");
  TorchFlag(app, "--start-method", &f->start_method, "PET_START_METHOD", "spawn|fork|forkserver",
            "Accepted; workers are always executed afresh");
}

void AddOwnLaunchFlags(CLI::App* app, LaunchFlags* f, bool stays) {
  app->option_defaults()->group("Job");
  Flag(app, "--name", &f->name, "NAME", "What to call the job (default: from PROGRAM)");
  Flag(app, "--restart-window", &f->restart_window, "\"N in TIME\"",
       "Restarts of any cause allowed within that time (default \"10 in 1h\")");
  Flag(app, "--grace", &f->grace, "TIME", "From SIGTERM to SIGKILL (default 30s)");
  Flag(app, "--lease", &f->lease, "TIME",
       "How long workers go on without their coordinator (default 10s)");
  Flag(app, "--join-timeout", &f->join_timeout, "TIME", "How long to wait for nodes (default 10m)");
  if (stays) {
    Flag(app, "--orphan-timeout", &f->orphan_timeout, "TIME|none",
         "How long the job runs on after this command was killed (default 1m)");
  }
  Flag(app, "--hang-timeout", &f->hang_timeout, "TIME|none",
       "How long a worker may make no progress (default: 20 times its step, at least 1m; scripts "
       "that report no steps count only if this is given: silent and idle for so long)");
  Flag(app, "--memory-limit", &f->memory_limit, "SIZE",
       "Memory that the workers of a node may use together, such as 64GiB (default: no limit)");
  Flag(app, "--process-limit", &f->process_limit, "N",
       "Processes and threads that they may have together (default: no limit)");
  Flag(app, "--log-quota", &f->log_quota, "SIZE|none",
       "What the job's logs may take on a node; the oldest go first (default 10GiB)");
  Flag(app, "--checkpoint-dir", &f->checkpoint_dir, "DIR",
       "Where checkpoints are; the newest is resumed from");
  Flag(app, "--checkpoint-every", &f->checkpoint_every, "STEPS",
       "Steps from one checkpoint of the built-in trainer to the next");
  Flag(app, "--plan", &f->plan, "FILE",
       "Use the gradient buckets of another run's plan (built-in trainer)");
  app->add_option("--local-rank-arg", f->local_rank_arg,
                  "Pass --NAME=LOCAL_RANK to each worker, as torch.distributed.launch did; write "
                  "--local-rank-arg=NAME for a name other than local-rank")
      ->type_name("NAME")
      ->expected(0, 1)
      ->take_last()
      ->default_str("local-rank");
  app->add_flag("--virtual-local-rank", f->virtual_local_rank,
                "Every worker sees LOCAL_RANK=0 and one device");
  app->add_flag("--preemptible", f->preemptible,
                "SIGTERM says that the nodes are wanted back: within the grace the workers save at "
                "one step and end, or, if they report no steps, get the signal");
  app->add_flag("--propagate-exit-code", f->propagate_exit_code,
                "End with the first failing worker's own exit code instead of 1");
  app->add_flag("--requeue-status", f->requeue_status,
                "End with 75 (preempted, run again) or 93 (a requeue cannot mend it)");
  app->option_defaults()->group("GPUs");
  Flag(app, "--gpus", &f->gpus, "LIST",
       "One worker for each of these: indices (1,3), UUIDs, MIG slices (nvidia-smi -L); without it "
       "--nproc-per-node gpu takes all");
  app->add_flag("--share-gpus", f->share_gpus,
                "Also GPUs that other processes or jobs use; otherwise such a job is refused");
  Flag(app, "--topology", &f->topology, "FILE",
       "Plan with this topology of this node (trainctl topo --yaml), corrected by hand, instead of "
       "what is seen");
  app->option_defaults()->group("Several nodes");
  Flag(app, "--nodes", &f->nodes, "LIST|FILE",
       "Nodes whose daemons run: n[1-4,7], or a file with one on a line, each with :SLOTS if need "
       "be");
  Flag(
      app, "--spares", &f->spares, "N",
      "Nodes beyond --nnodes that may wait to take a lost one's place (default: those that --nodes "
      "has more)");
  Flag(app, "--node-name", &f->node_name, "NAME",
       "Name of this node in the job (default: the machine's)");
  Flag(app, "--daemon-port", &f->daemon_port, "PORT",
       "Where the daemons of --nodes listen (default 7676)");
  Flag(app, "--key", &f->key, "FILE",
       "Cluster key by which nodes know each other (default: root's "
       "/etc/trainctl/cluster.key, else your own, made at first use)");
  Flag(app, "--tls-cert", &f->tls_cert, "FILE",
       "Certificate of this node, instead of a cluster key");
  Flag(app, "--tls-key", &f->tls_key, "FILE", "Its private key");
  Flag(app, "--tls-ca", &f->tls_ca, "FILE",
       "Whoever has a certificate from here is a node of ours");
  app->option_defaults()->group("This command");
  if (stays) {
    app->add_flag(
        "--preflight", f->preflight,
        "Prove this node's GPUs first, as trainctl preflight does; 5 if they are not fit");
  }
  Flag(app, "--daemon", &f->daemon, "ADDR",
       "Socket of the daemon to use (default: yours, the system's, or a private one)");
  if (stays) {
    app->add_flag("--detach", f->detach, "Print the job's id and return: as submit");
  }
  app->add_flag("--dry-run", f->dry_run,
                "Print the plan and every worker's environment; start nothing");
  app->add_flag("--json", f->json, "One JSON object per line on stdout");
}

void AddTopoFlags(CLI::App* app, TopoFlags* f) {
  Flag(app, "--from", &f->from, "FILE",
       "Of the node in FILE: written with --json or --yaml, or NCCL's XML");
  app->add_flag("--explain", f->explain, "Also the plan that follows, each choice with its reason");
  Flag(app, "--svg", &f->svg, "FILE", "Also a picture of the node");
  app->add_flag("--json", f->json, "One JSON object on stdout: topology and plan")
      ->excludes(app->add_flag("--yaml", f->yaml, "The same as YAML"));
}

void AddBenchFlags(CLI::App* app, BenchFlags* f) {
  app->add_option("WHAT", f->what, "allreduce")->required();
  Flag(app, "--backend", &f->backend, "auto|nccl|gloo",
       "What to measure (default: nccl where there is a GPU)");
  Flag(app, "--largest", &f->largest, "SIZE", "The largest message (default 256MiB)");
  Flag(app, "--nproc-per-node", &f->launch.nproc_per_node, "N|gpu|cpu|auto",
       "Workers on each node (default: one for each GPU, else 2)");
  Flag(app, "--nodes", &f->launch.nodes, "LIST|FILE", "Nodes whose daemons run (default: this)");
  app->add_flag("--json", f->launch.json, "One JSON object per line on stdout");
}

void AddJob(CLI::App* app, JobFlags* f) {
  app->add_option("JOB", f->job, "Id of a job, the beginning of one, or a name")->required();
}
void AddDaemon(CLI::App* app, JobFlags* f) {
  Flag(app, "--daemon", &f->daemon, "ADDR", "Socket of the daemon to use");
}
void AddJson(CLI::App* app, JobFlags* f) {
  app->add_flag("--json", f->json, "One JSON object per line on stdout");
}

// A verb: its texts (names in help_text.h) and its flags.
std::unique_ptr<CLI::App> BuildVerb(const std::string& verb, CommandLine* line) {
  auto app = std::make_unique<CLI::App>("", verb);
  app->set_help_flag();  // taken out of the words beforehand
  JobFlags* job = &line->job;
  if (verb == "launch" || verb == "submit") {
    AddTorchFlags(app.get(), &line->launch);
    AddOwnLaunchFlags(app.get(), &line->launch, verb == "launch");
  } else if (verb == "resume") {
    AddJob(app.get(), job);
    AddDaemon(app.get(), job);
    AddJson(app.get(), job);
  } else if (verb == "list" || verb == "version") {
    AddJson(app.get(), job);
  } else if (verb == "status") {
    AddJob(app.get(), job);
    AddJson(app.get(), job);
  } else if (verb == "logs") {
    AddJob(app.get(), job);
    app->add_flag("-f,--follow", job->follow, "Go on until the job ends");
    Flag(app.get(), "--rank", &job->ranks, "LIST", "Only these ranks: 0 or 0,2-4");
    Flag(app.get(), "--since", &job->since, "TIME",
         "Only what came since: 10m ago, or 2026-01-31T12:00:00Z");
    Flag(app.get(), "--grep", &job->grep, "RE", "Only lines that match");
    AddJson(app.get(), job);
  } else if (verb == "stop") {
    AddJob(app.get(), job);
    app->add_flag("--checkpoint", job->checkpoint, "Save a checkpoint first");
    app->add_flag("--now", job->now, "Kill at once, without the grace");
  } else if (verb == "signal") {
    AddJob(app.get(), job);
    app->add_option("SIGNAL", job->signal, "USR1, SIGUSR1 or 10")->required();
    Flag(app.get(), "--rank", &job->ranks, "LIST", "Only to these ranks: 0 or 0,2-4");
  } else if (verb == "events") {
    AddJob(app.get(), job);
    AddJson(app.get(), job);
  } else if (verb == "report") {
    AddJob(app.get(), job);
  } else if (verb == "chaos") {
    ChaosFlags* chaos = &line->chaos;
    app->add_option("JOB", chaos->job, "Id of a job, the beginning of one, or a name")->required();
    Flag(app.get(), "--kill-rank", &chaos->kill_rank, "N|any", "Send SIGKILL to this rank");
    Flag(app.get(), "--stop-rank", &chaos->stop_rank, "N|any",
         "Send SIGSTOP to this rank, as if it hung");
    Flag(app.get(), "--delay", &chaos->delay, "TIME",
         "Stop this rank (default: any) for so long only, as if it were slow");
    Flag(app.get(), "--kill-node", &chaos->kill_node, "NODE|any",
         "Kill all of the job on this node, and its daemon, as if it lost its power");
    Flag(app.get(), "--every", &chaos->every, "TIME", "Again and again, until the job ends");
    Flag(app.get(), "--times", &chaos->times, "N",
         "At most so often (default 1; with --every: no limit)");
    Flag(app.get(), "--seed", &chaos->seed, "N",
         "The same ranks in every run (default: by chance)");
  } else if (verb == "nodes") {
    app->add_option("WHAT", line->nodes.what, "drain or undrain");
    app->add_option("NODE", line->nodes.node, "Name of a node");
    Flag(app.get(), "--job", &line->nodes.job, "JOB", "Only this job (default: all that run)");
    app->add_flag("--json", line->nodes.json, "One JSON object per line on stdout");
  } else if (verb == "topo") {
    AddTopoFlags(app.get(), &line->topo);
  } else if (verb == "preflight") {
    Flag(app.get(), "--deadline", &line->preflight.deadline, "TIME",
         "How long a check may give no sign of life (default 30s)");
    app->add_flag("--json", line->preflight.json, "One JSON object on stdout");
  } else if (verb == "bench") {
    AddBenchFlags(app.get(), &line->bench);
  } else if (verb == "key") {
    app->add_option("new", line->key.what, "What to do: new makes a key")->required();
    app->add_option("PATH", line->key.path, "Where to write it");
  } else if (verb == "completion") {
    app->add_option("SHELL", line->shell, "bash or zsh")->required();
  }
  return app;
}

std::vector<FlagText> FlagTexts(const CLI::App& app) {
  std::vector<FlagText> flags;
  for (const CLI::Option* option : app.get_options()) {
    FlagText flag;
    for (const std::string& name : option->get_snames()) {
      flag.names.push_back(absl::StrCat("-", name));
    }
    for (const std::string& name : option->get_lnames()) {
      flag.names.push_back(absl::StrCat("--", name));
    }
    if (flag.names.empty()) {
      continue;  // a positional: the usage shows it
    }
    flag.value = option->get_items_expected_max() > 0 ? option->get_type_name() : "";
    flag.value_optional = option->get_items_expected_min() == 0;
    flag.meaning = option->get_description();
    flag.group = option->get_group();
    flags.push_back(std::move(flag));
  }
  return flags;
}

VerbText DescribeVerb(const VerbLine& verb) {
  CommandLine unused;
  VerbText text;
  text.name = verb.name;
  text.usage = verb.usage;
  text.summary = verb.summary;
  text.example = verb.example;
  text.flags = FlagTexts(*BuildVerb(verb.name, &unused));
  return text;
}

bool StartsJob(const std::string& verb) { return verb == "launch" || verb == "submit"; }

const VerbLine* FindVerb(const std::string& name) {
  for (const VerbLine& verb : VerbLines()) {
    if (verb.name == name) {
      return &verb;
    }
  }
  return nullptr;
}

absl::Status UnknownVerb(const std::string& verb) {
  if (verb.empty()) {
    return absl::InvalidArgumentError("the verb is empty; trainctl --help shows them");
  }
  std::vector<std::string> names;
  for (const VerbLine& known : VerbLines()) {
    names.push_back(known.name);
  }
  const std::string nearest = DidYouMean(verb, names);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown verb ", verb.substr(0, 100),
                   nearest.empty() ? "; trainctl --help shows those there are" : nearest));
}

absl::Status CheckNodes(const NodesFlags& flags) {
  if (!flags.what.empty() && flags.what != "drain" && flags.what != "undrain") {
    return absl::InvalidArgumentError(
        absl::StrCat("nodes: found \"", flags.what, "\", expected drain NODE or undrain NODE"));
  }
  if (flags.what.empty() != flags.node.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("nodes ", flags.what, ": give the name of a ",
                                                   "node; trainctl nodes shows them"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<VerbText> DescribeVerbs() {
  std::vector<VerbText> verbs;
  for (const VerbLine& verb : VerbLines()) {
    verbs.push_back(DescribeVerb(verb));
  }
  return verbs;
}

bool AsksForJson(const std::vector<std::string>& words) {
  if (words.empty()) {
    return false;
  }
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (FindVerb(words.front()) == nullptr) {
    return std::find(rest.begin(), rest.end(), "--json") != rest.end();
  }
  CommandLine unused;
  SplitWords split;
  // What is wrong with the words, ParseCommandLine says.
  Split(*BuildVerb(words.front(), &unused), rest, StartsJob(words.front()), &split).IgnoreError();
  return split.json;
}

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& words) {
  CommandLine line;
  if (words.empty()) {
    return absl::InvalidArgumentError("no verb given; trainctl --help shows them");
  }
  line.verb = words.front();
  if (line.verb == "--help" || line.verb == "-h" || (line.verb == "help" && words.size() == 1)) {
    line.help = ProgramHelp();
    return line;
  }
  std::vector<std::string> rest(words.begin() + 1, words.end());
  if (line.verb == "help") {
    line.verb = words[1];
    rest = {"--help"};
  }
  if (line.verb == "--version") {
    line.verb = "version";
  }
  const VerbLine* verb = FindVerb(line.verb);
  if (verb == nullptr) {
    return UnknownVerb(line.verb);
  }
  std::unique_ptr<CLI::App> app = BuildVerb(line.verb, &line);
  SplitWords split;
  RETURN_IF_ERROR(Split(*app, rest, StartsJob(line.verb), &split));
  if (split.help) {
    line.help = VerbHelp(DescribeVerb(*verb));
    return line;
  }
  if (StartsJob(line.verb)) {
    line.launch.program = std::move(split.rest);
  } else {
    split.flags.insert(split.flags.end(), split.rest.begin(), split.rest.end());
  }
  RETURN_IF_ERROR(RunParser(app.get(), std::move(split.flags)));
  if (StartsJob(line.verb) && line.launch.program.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "nothing to run: give a PROGRAM or a JOB.yaml (trainctl ", line.verb, " --help)"));
  }
  if (line.verb == "nodes") RETURN_IF_ERROR(CheckNodes(line.nodes));
  if (line.verb == "key" && line.key.what != "new") {
    return absl::InvalidArgumentError(
        absl::StrCat("key: found \"", line.key.what, "\", expected new"));
  }
  if (line.verb == "bench" && line.bench.what != "allreduce") {
    return absl::InvalidArgumentError(
        absl::StrCat("bench: found \"", line.bench.what, "\", expected allreduce"));
  }
  if (line.verb == "completion" && line.shell != "bash" && line.shell != "zsh") {
    return absl::InvalidArgumentError(
        absl::StrCat("completion: found \"", line.shell, "\", expected bash or zsh"));
  }
  return line;
}

}  // namespace trainctl

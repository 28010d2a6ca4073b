#include "launcher/help_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace trainctl {
namespace {

constexpr int kUsageWidth = 50;
constexpr int kFlagWidth = 34;
constexpr int kLineWidth = 100;

constexpr const char* kExitStatus =
    "  0      done\n"
    "  1      the job failed, whatever the class; or stdout cannot be written\n"
    "  2      usage, job file, program missing or not executable\n"
    "  3      daemon or job not reachable\n"
    "  4      not authorised\n"
    "  5      this machine is not fit (preflight, gpu without a GPU, state folder not writable)\n"
    "  6      time-out waiting for nodes\n"
    "  128+N  this command was ended by signal N\n"
    "  75 93  with --requeue-status: preempted, run again; failed so that a requeue cannot mend "
    "it\n";

// Columns that a terminal shows: UTF-8 continuation bytes take none.
int Columns(const std::string& text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// `left` padded to `width` columns (on a line of its own if it is longer), then `right`, wrapped.
std::string TwoColumns(const std::string& left, int width, const std::string& right) {
  std::string out = left;
  int column = Columns(left);
  if (column + 2 > width) {
    out += "\n";
    column = 0;
  }
  out.append(static_cast<size_t>(width - column), ' ');
  column = width;
  bool first = true;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(right, ' '))) {
    if (!first && column + 1 + Columns(word) > kLineWidth) {
      out += absl::StrCat("\n", std::string(static_cast<size_t>(width), ' '));
      column = width;
    } else if (!first) {
      out += " ";
      ++column;
    }
    out += word;
    column += Columns(word);
    first = false;
  }
  return out + "\n";
}

std::string FlagUsage(const FlagText& flag) {
  std::string usage = absl::StrJoin(flag.names, ", ");
  if (!flag.value.empty()) {
    usage +=
        flag.value_optional ? absl::StrCat("[=", flag.value, "]") : absl::StrCat(" ", flag.value);
  }
  return usage;
}

std::string AllFlagNames(const VerbText& verb) {
  std::vector<std::string> names;
  for (const FlagText& flag : verb.flags) {
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  names.push_back("--help");
  return absl::StrJoin(names, " ");
}

std::string Roff(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"\\", "\\e"}, {"-", "\\-"}, {"\n.", "\n\\&."}, {"…", "\\[u2026]"}});
}

}  // namespace

const std::vector<VerbLine>& VerbLines() {
  static const auto* lines = new std::vector<VerbLine>{
      {"launch", "launch [flags] PROGRAM|JOB.yaml [ARGS…]",
       "start a job here and stay with it; Ctrl-C stops it",
       "trainctl launch --nproc-per-node 2 train.py --lr 0.1"},
      {"submit", "submit [flags] PROGRAM|JOB.yaml [ARGS…]", "start a job, print its id, return",
       "trainctl submit --name nightly job.yaml"},
      {"resume", "resume JOB", "attach again, or take over a job left alone",
       "trainctl resume nightly"},
      {"list", "list", "jobs of this user on this machine", "trainctl list"},
      {"status", "status JOB", "phase, step, workers, what the job waits for",
       "trainctl status nightly"},
      {"logs", "logs JOB [-f] [--rank LIST] [--since TIME] [--grep RE]", "what the workers printed",
       "trainctl logs nightly -f --rank 0 --since 10m"},
      {"stop", "stop JOB [--checkpoint]", "end a job", "trainctl stop nightly --checkpoint"},
      {"signal", "signal JOB SIGNAL [--rank LIST]", "send a signal to workers",
       "trainctl signal nightly USR1"},
      {"events", "events JOB", "what happened to a job, from its journal",
       "trainctl events nightly"},
      {"report", "report JOB", "a page with charts and a trace of a job",
       "trainctl report nightly"},
      {"chaos", "chaos JOB --kill-rank N|any …",
       "make workers or nodes fail, to see that the job survives",
       "trainctl chaos nightly --kill-rank any --every 30s"},
      {"nodes", "nodes [drain NODE|undrain NODE]",
       "nodes of running jobs; take one out, or back in", "trainctl nodes drain n3"},
      {"topo", "topo [--from FILE] [--explain]",
       "what is connected to what here, and the plan that follows", "trainctl topo --explain"},
      {"preflight", "preflight [--json]", "whether the GPUs here do what they say they can",
       "trainctl preflight"},
      {"bench", "bench allreduce [flags]", "how fast workers can sum here, against a known sum",
       "trainctl bench allreduce --nproc-per-node gpu"},
      {"key", "key new [PATH]", "make the secret that the nodes of a cluster share",
       "sudo trainctl key new"},
      {"completion", "completion bash|zsh", "print a completion script",
       "trainctl completion bash > ~/.local/share/bash-completion/completions/trainctl"},
      {"version", "version", "print the version", "trainctl version --json"},
  };
  return *lines;
}

std::string ProgramHelp() {
  std::string out = "Launches data-parallel training and keeps it running.\n\n";
  for (const VerbLine& verb : VerbLines()) {
    absl::StrAppend(&out,
                    TwoColumns(absl::StrCat("trainctl ", verb.usage), kUsageWidth, verb.summary));
  }
  absl::StrAppend(&out, "\ntrainctl VERB --help shows flags and an example.\n\nExit status:\n",
                  kExitStatus);
  return out;
}

std::string VerbHelp(const VerbText& verb) {
  std::string out = absl::StrCat("trainctl ", verb.usage, "\n  ", verb.summary, "\n\nExample:\n  ",
                                 verb.example, "\n");
  std::string group;
  for (const FlagText& flag : verb.flags) {
    if (flag.group != group) {
      group = flag.group;
      absl::StrAppend(&out, "\n", group == "Options" ? "Flags" : group, ":\n");
    }
    absl::StrAppend(&out,
                    TwoColumns(absl::StrCat("  ", FlagUsage(flag)), kFlagWidth, flag.meaning));
  }
  absl::StrAppend(&out, "\nExit status:\n", kExitStatus);
  return out;
}

std::string BashCompletion(const std::vector<VerbText>& verbs) {
  std::vector<std::string> names;
  std::string cases;
  for (const VerbText& verb : verbs) {
    names.push_back(verb.name);
    absl::StrAppend(&cases, "    ", verb.name, ") words=\"", AllFlagNames(verb), "\" ;;\n");
  }
  return absl::StrCat(
      "# Completion of trainctl for bash.\n"
      "_trainctl() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" words=\"\"\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"",
      absl::StrJoin(names, " "),
      " --help\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${COMP_WORDS[1]}\" in\n",
      cases,
      "  esac\n"
      "  case \"$word\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); return ;;\n"
      "  esac\n"
      "  case \"${COMP_WORDS[1]}\" in\n"
      "    resume|status|logs|stop|signal|events|report|chaos)\n"
      "      COMPREPLY=($(compgen -W \"$(trainctl list 2>/dev/null | awk 'NR > 1 {print $1}')\" -- "
      "\"$word\")) ;;\n"
      "    completion) COMPREPLY=($(compgen -W \"bash zsh\" -- \"$word\")) ;;\n"
      "    nodes) COMPREPLY=($(compgen -W \"drain undrain\" -- \"$word\")) ;;\n"
      "    bench) COMPREPLY=($(compgen -W allreduce -- \"$word\")) ;;\n"
      "    key) COMPREPLY=($(compgen -W new -- \"$word\")) ;;\n"
      "  esac\n"
      "}\n"
      "complete -o default -F _trainctl trainctl\n");
}

std::string ZshCompletion(const std::vector<VerbText>& verbs) {
  std::string names;
  std::string cases;
  for (const VerbText& verb : verbs) {
    absl::StrAppend(&names, "    '", verb.name, ":",
                    absl::StrReplaceAll(verb.summary, {{"'", "’"}}), "'\n");
    absl::StrAppend(&cases, "    ", verb.name, ") flags=(", AllFlagNames(verb), ") ;;\n");
  }
  return absl::StrCat(
      "#compdef trainctl\n"
      "_trainctl() {\n"
      "  local -a verbs flags\n"
      "  verbs=(\n",
      names,
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe 'verb' verbs\n"
      "    return\n"
      "  fi\n"
      "  case $words[2] in\n",
      cases,
      "  esac\n"
      "  if [[ $words[CURRENT] == -* ]]; then\n"
      "    compadd -- $flags\n"
      "    return\n"
      "  fi\n"
      "  case $words[2] in\n"
      "    resume|status|logs|stop|signal|events|report|chaos)\n"
      "      compadd -- ${(f)\"$(trainctl list 2>/dev/null | awk 'NR > 1 {print $1}')\"} ;;\n"
      "    completion) compadd bash zsh ;;\n"
      "    nodes) compadd drain undrain ;;\n"
      "    bench) compadd allreduce ;;\n"
      "    key) compadd new ;;\n"
      "    *) _files ;;\n"
      "  esac\n"
      "}\n"
      "compdef _trainctl trainctl\n");
}

std::string ManualPage(const std::vector<VerbText>& verbs) {
  std::string out =
      ".TH TRAINCTL 1\n.SH NAME\ntrainctl \\- launch data\\-parallel training and keep it running\n"
      ".SH SYNOPSIS\n.nf\n";
  for (const VerbText& verb : verbs) {
    absl::StrAppend(&out, Roff(absl::StrCat("trainctl ", verb.usage)), "\n");
  }
  absl::StrAppend(&out, ".fi\n.SH VERBS\n");
  for (const VerbText& verb : verbs) {
    absl::StrAppend(&out, ".SS ", Roff(verb.usage), "\n", Roff(verb.summary), ".\n.P\n.nf\n    ",
                    Roff(verb.example), "\n.fi\n");
    for (const FlagText& flag : verb.flags) {
      absl::StrAppend(&out, ".TP\n", Roff(FlagUsage(flag)), "\n", Roff(flag.meaning), "\n");
    }
  }
  absl::StrAppend(&out, ".SH EXIT STATUS\n.nf\n", Roff(kExitStatus), ".fi\n");
  return out;
}

}  // namespace trainctl

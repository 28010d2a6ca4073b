// trainctl-sim: runs simulated jobs and says what went wrong.
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/flags.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

constexpr int kCrashed = 10;
constexpr int kUnsafe = 11;
constexpr int kStuck = 12;
constexpr int kNotTheSameTwice = 13;

char reproduce[512];  // the command, for the handler of a crash
std::string program;
std::string commit;

void OnCrash(int signo) {
  char text[600];
  const int size = std::snprintf(text, sizeof(text), "crash: signal %d\n%s\n", signo, reproduce);
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, static_cast<size_t>(size));
  ::_exit(kCrashed);
}

// Of the tree as it is now; empty where there is no git.
std::string ReadCommit() {
  FILE* git = ::popen("git -C " TRAINCTL_SOURCE_DIR " rev-parse --short HEAD 2>/dev/null", "r");
  if (!git) return "";
  char text[64] = "";
  const bool read = std::fgets(text, sizeof(text), git) != nullptr;
  ::pclose(git);
  return read ? absl::StrCat("  # commit ", absl::StripAsciiWhitespace(text)) : "";
}

double ProcessorSeconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

int Complain(int status, const std::string& text) {
  std::fprintf(stderr, "%s\n%s\n", text.c_str(), reproduce);
  return status;
}

int RunSeed(const Options& options, bool twice, bool quiet) {
  std::snprintf(reproduce, sizeof(reproduce),
                "%s --seed %llu --nodes %d --slots %d --minutes %g%s%s%s%s%s%s", program.c_str(),
                static_cast<unsigned long long>(options.seed), options.nodes, options.slots,
                ToSeconds(options.duration) / 60, options.faults ? "" : " --no-faults",
                options.rare == 1 ? "" : absl::StrCat(" --rare ", options.rare).c_str(),
                options.mutation == Mutation::kNone ? "" : " --plant ",
                options.mutation == Mutation::kNone ? "" : MutationName(options.mutation),
                twice ? " --twice" : "", commit.c_str());
  const double before = ProcessorSeconds();
  const Result result = World(options).Run();
  if (options.keep_trace) std::fputs(result.trace.c_str(), stdout);
  if (!quiet) {
    std::printf(
        "seed %llu: %s; %lld epochs, %d terms, %lld steps, %zu faults, running after %.3f s,"
        " processor %.2f s\n",
        static_cast<unsigned long long>(options.seed), result.end.c_str(),
        static_cast<long long>(result.epochs), result.terms, static_cast<long long>(result.steps),
        result.faults, ToSeconds(result.to_running), ProcessorSeconds() - before);
    std::fflush(stdout);
  }
  if (result.verdict == Verdict::kUnsafe) {
    return Complain(kUnsafe, absl::StrCat("unsafe (", result.checker, ") ", result.text));
  }
  if (result.verdict == Verdict::kStuck) {
    return Complain(kStuck, absl::StrCat("stuck (", result.checker, ") ", result.text));
  }
  if (!twice) return 0;
  const Result again = World(options).Run();
  if (again.digest != result.digest || again.trace != result.trace) {
    return Complain(kNotTheSameTwice, "the same seed gave another trace");
  }
  return 0;
}

std::vector<std::string> MutationNames() {
  std::vector<std::string> names;
  for (int i = 1; i < kMutations; ++i) names.push_back(MutationName(static_cast<Mutation>(i)));
  return names;
}

int Main(int argc, char** argv) {
  Flags flags(
      "trainctl-sim",
      "trainctl-sim: runs a job on simulated nodes with faults, from one seed.\n\n"
      "Exit status: 0 good, 10 crash, 11 unsafe, 12 stuck, 13 not the same twice. The last line "
      "is then the command that shows it again.\n\n"
      "Example: trainctl-sim --seed 7 --nodes 64 --minutes 10");
  Options options;
  double minutes = 5;
  int seeds = 1;
  bool twice = false;
  bool quiet = false;
  bool no_faults = false;
  std::string planted;
  flags.Add("--seed", &options.seed, "first seed");
  flags.Add("--seeds", &seeds, {1, 1'000'000}, "so many, one after the other");
  flags.Add("--nodes", &options.nodes, {1, 16384}, "machines");
  flags.Add("--slots", &options.slots, {1, 64}, "workers on each");
  flags.Add("--minutes", &minutes, "simulated time with faults");
  flags.AddChoice("--plant", &planted, MutationNames(), "make this wrong, to see that it is found");
  flags.Add("--rare", &options.rare, {1, 1000},
            "faults come so many times less often, checkpoints every 5 min");
  flags.AddSwitch("--no-faults", &no_faults, "nothing goes wrong");
  flags.AddSwitch("--twice", &twice, "run each seed twice and compare the traces");
  flags.AddSwitch("--trace", &options.keep_trace, "print what happens");
  flags.AddSwitch("--quiet", &quiet, "say nothing of what is good");
  if (const std::optional<int> ended = flags.Parse(argc, argv)) return *ended;
  options.duration = FromSeconds(minutes * 60);
  options.faults = !no_faults;
  for (int i = 0; i < kMutations; ++i) {
    if (planted == MutationName(static_cast<Mutation>(i)))
      options.mutation = static_cast<Mutation>(i);
  }
  program = argv[0];
  commit = ReadCommit();
  for (const int signo : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signo, OnCrash);
  for (int i = 0; i < seeds; ++i) {
    if (const int status = RunSeed(options, twice, quiet); status != 0) return status;
    ++options.seed;
  }
  return 0;
}

}  // namespace
}  // namespace trainctl::sim

int main(int argc, char** argv) { return trainctl::sim::Main(argc, argv); }

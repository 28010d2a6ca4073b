// trainctl: starts jobs, shows them, talks to them. Decides nothing about a job.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/command_line.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/log.h"

namespace trainctl {
namespace {

// A process that begins without stdin, stdout or stderr would open its first sockets under their
// numbers and print into them.
void OccupyStandardDescriptors() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= 2);
  if (fd > 2) {
    close(fd);
  }
}

int Run(const CommandLine& line) {
  if (line.verb == "launch") return RunLaunch(line.launch);
  if (line.verb == "submit") return RunSubmit(line.launch);
  if (line.verb == "resume") return RunResume(line.job);
  if (line.verb == "list") return RunList(line.job);
  if (line.verb == "status") return RunStatus(line.job);
  if (line.verb == "logs") return RunLogs(line.job);
  if (line.verb == "stop") return RunStop(line.job);
  if (line.verb == "signal") return RunSignal(line.job);
  if (line.verb == "events") return RunEvents(line.job);
  if (line.verb == "report") return RunReport(line.job);
  if (line.verb == "chaos") return RunChaos(line.chaos);
  if (line.verb == "nodes") return RunNodes(line.nodes);
  if (line.verb == "topo") return RunTopo(line.topo);
  if (line.verb == "preflight") return RunPreflight(line.preflight);
  if (line.verb == "bench") return RunBench(line.bench);
  if (line.verb == "key") return RunKey(line.key);
  if (line.verb == "completion") return RunCompletion(line.shell);
  return RunVersion(line.job);
}

int Main(const std::vector<std::string>& words) {
  OccupyStandardDescriptors();
  InitLog("trainctl");
  if (words.size() == 1 && words[0] == "manual-page") {
    return RunManualPage();
  }
  if (AsksForJson(words)) {
    TellErrorsAsJson();
  }
  absl::StatusOr<CommandLine> line = ParseCommandLine(words);
  if (!line.ok()) {
    return Fail(line.status());
  }
  int status = kExitDone;
  if (line->help.empty()) {
    status = Run(*line);
  } else {
    Console().Out(line->help);
  }
  if (status == kExitDone && Console::out_error() != 0) {
    return Fail(absl::UnknownError(ErrnoStatus(Console::out_error(), "write to stdout").message()));
  }
  return status;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  try {
    const int status = trainctl::Main(std::vector<std::string>(argv + 1, argv + argc));
    // Threads may still wait for answers: nothing is torn down under them.
    std::fflush(nullptr);
    std::_Exit(status);
  } catch (const std::exception& error) {
    fprintf(stderr, "trainctl: unexpected: %s\n", error.what());
    abort();
  }
}

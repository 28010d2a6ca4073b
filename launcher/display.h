// What a person (or, with --json, a program) sees of a job while it is attached to it.
#ifndef TRAINCTL_LAUNCHER_DISPLAY_H_
#define TRAINCTL_LAUNCHER_DISPLAY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "absl/strings/string_view.h"
#include "launcher/console.h"
#include "launcher/job_client.h"
#include "launcher/launch_request.h"
#include "launcher/line_assembler.h"
#include "runtime/base/time.h"

namespace trainctl {

struct DisplayOptions {
  bool json = false;
  ConsoleChoice choice;
};

// Workers' lines go to stdout and stderr as they came, each "[node:rank] line"; messages and
// progress to stderr, progress redrawn in place on a terminal. Not thread-safe. REQUIRES: the
// console outlives the display.
class Display {
 public:
  Display(Console* console, DisplayOptions options);
  ~Display();  // leaves the terminal clean

  void Show(const JobUpdate& update, Instant now);
  // From now on workers' output is not shown: who is in a hurry does not want to read on.
  void DropOutput() { drops_output_ = true; }
  // A message of the front end itself.
  void Say(absl::string_view message, Announce::Level level = Announce::Level::kInfo);

 private:
  struct Place {
    std::string prefix;  // "[node:rank] "
    int local_rank = 0;
  };

  void ShowDescription(const JobDescription& job);
  void ShowOutput(const OutputBatch& batch);
  void AddLines(const OutputBytes& output, std::string* out);
  void ShowProgress(const ProgressSeen& progress, Instant now);
  void ShowEnd(const JobEnded& end);
  void FinishLines();
  std::string PrefixOf(int rank) const;
  void Write(int stream, absl::string_view data);
  void WriteMessage(absl::string_view text, Announce::Level level);
  void DrawProgress();
  void EraseProgress();

  Console* console_;
  const DisplayOptions options_;
  bool redraws_ = false;
  bool drops_output_ = false;
  std::optional<JobDescription> job_;
  std::map<int, Place> places_;
  std::map<std::tuple<int64_t, int, int>, LineAssembler> lines_;  // epoch, rank, stream
  std::optional<ProgressSeen> progress_;
  bool drawn_ = false;
  Instant last_progress_{0};
  int64_t last_tenth_ = -1;  // of the steps, in plain progress
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_DISPLAY_H_

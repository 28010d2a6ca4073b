// From what the user typed after the flags to the command that workers run.
#ifndef TRAINCTL_LAUNCHER_PROGRAM_CHOICE_H_
#define TRAINCTL_LAUNCHER_PROGRAM_CHOICE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// What a program is looked up in. PATH and PYTHON_EXEC of the workers' environment.
struct ProgramPlace {
  std::string path;
  std::string python;  // PYTHON_EXEC; empty: python3
};

// FILE.py -> python3 -u FILE; with `module`, python3 -u -m PROGRAM; anything else, and everything
// with `no_python`, is executed itself. INVALID_ARGUMENT if it is missing or cannot be executed.
// REQUIRES: words is not empty. Looks at the file system.
absl::StatusOr<std::vector<std::string>> ChooseProgram(const std::vector<std::string>& words,
                                                       bool module, bool no_python,
                                                       const ProgramPlace& place);

// INVALID_ARGUMENT unless `program` (a path, or a name looked up in `path`) can be executed.
absl::Status CheckExecutable(const std::string& program, const std::string& path);

// The job's name if the user gives none: "train" for [python3, -u, src/train.py].
std::string NameOfProgram(const std::vector<std::string>& words);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_PROGRAM_CHOICE_H_

#include "launcher/program_choice.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

bool IsExecutableFile(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

absl::Status CheckScript(const std::string& script) {
  struct stat found {};
  if (stat(script.c_str(), &found) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot start the program ", script, ": ", strerror(errno)));
  }
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot start the program ", script, ": it is not a file"));
  }
  if (access(script.c_str(), R_OK) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot start the program ", script,
                                                   ": it cannot be read: ", strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckExecutable(const std::string& program, const std::string& path) {
  const std::string doing = absl::StrCat("cannot start the program ", program, ": ");
  if (!absl::StrContains(program, "/")) {
    for (absl::string_view folder : absl::StrSplit(path, ':')) {
      if (IsExecutableFile(JoinPath(folder.empty() ? "." : folder, program))) {
        return absl::OkStatus();
      }
    }
    return absl::InvalidArgumentError(
        absl::StrCat(doing, "not found in PATH",
                     access(program.c_str(), F_OK) == 0
                         ? absl::StrCat("; for the file in this folder write ./", program)
                         : ""));
  }
  struct stat found {};
  if (stat(program.c_str(), &found) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(doing, strerror(errno)));
  }
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(doing, "it is not a file"));
  }
  if (access(program.c_str(), X_OK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(doing, "it is not executable (chmod +x ", program, ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ChooseProgram(const std::vector<std::string>& words,
                                                       bool module, bool no_python,
                                                       const ProgramPlace& place) {
  if (words.front().empty()) {
    return absl::InvalidArgumentError("PROGRAM is empty");
  }
  if (module && no_python) {
    return absl::InvalidArgumentError("-m and --no-python exclude each other");
  }
  std::vector<std::string> command;
  if (module || (!no_python && absl::EndsWith(words.front(), ".py"))) {
    command = {place.python.empty() ? "python3" : place.python, "-u"};
    RETURN_IF_ERROR(CheckExecutable(command.front(), place.path));
    if (module) {
      command.push_back("-m");
    } else {
      RETURN_IF_ERROR(CheckScript(words.front()));
    }
  } else {
    RETURN_IF_ERROR(CheckExecutable(words.front(), place.path));
  }
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::string NameOfProgram(const std::vector<std::string>& words) {
  absl::string_view name = words.front();
  name = name.substr(name.rfind('/') == absl::string_view::npos ? 0 : name.rfind('/') + 1);
  for (absl::string_view suffix : {".py", ".yaml", ".yml", ".sh"}) {
    absl::ConsumeSuffix(&name, suffix);
  }
  return std::string(name);
}

}  // namespace trainctl

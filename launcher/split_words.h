// The words of one verb on their way to the flag parser, and what is wrong with them in words of
// our own.
#ifndef TRAINCTL_LAUNCHER_SPLIT_WORDS_H_
#define TRAINCTL_LAUNCHER_SPLIT_WORDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace trainctl {

struct SplitWords {
  std::vector<std::string> flags;  // for the parser: a flag and its value in one word
  std::vector<std::string> rest;   // PROGRAM and what follows, as it was typed
  bool help = false;
  bool json = false;
};

// `stop_at_program`: the first word that is no flag and no flag's value ends the flags. Returns the
// first problem, after all words were looked at: `split` says whether --json was given all the
// same.
absl::Status Split(const CLI::App& app, const std::vector<std::string>& words, bool stop_at_program,
                   SplitWords* split);

// INVALID_ARGUMENT names the flag or the argument, what was found and what was expected.
absl::Status RunParser(CLI::App* app, std::vector<std::string> words);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_SPLIT_WORDS_H_

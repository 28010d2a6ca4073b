// train-preflight: one child of `trainctl preflight`, which ends it when it hangs.
//
//   train-preflight list | memory | copies SKIP | collective FOLDER RANK RANKS
//
// An error is one line {"error": TEXT}; exit status 1.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/fd.h"
#include "runtime/json/json_text.h"
#include "runtime/preflight/checks.h"

namespace trainctl {
namespace {

absl::Status Run(const std::vector<std::string>& words) {
  std::vector<int> numbers;
  for (const std::string& word : words) {
    int number = 0;
    if (absl::SimpleAtoi(word, &number)) numbers.push_back(number);
  }
  if (words == std::vector<std::string>{"list"}) return ListGpus();
  if (words == std::vector<std::string>{"memory"}) return CheckMemory();
  if (words.size() == 2 && words[0] == "copies" && numbers.size() == 1) {
    return CheckCopies(numbers[0]);
  }
  if (words.size() == 4 && words[0] == "collective" && numbers.size() == 2) {
    return CheckCollective(words[1], numbers[0], numbers[1]);
  }
  return absl::InvalidArgumentError("train-preflight is started by trainctl preflight");
}

int Main(const std::vector<std::string>& words) {
  const absl::Status status = Run(words);
  if (status.ok()) return 0;
  const nlohmann::json line = {{"error", std::string(status.message())}};
  WriteAll(STDOUT_FILENO, absl::StrCat(JsonText(line), "\n"), "stdout").IgnoreError();
  return 1;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  try {
    return trainctl::Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fprintf(stderr, "train-preflight: unexpected: %s\n", error.what());
    abort();
  }
}

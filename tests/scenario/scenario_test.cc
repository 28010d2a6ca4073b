// Plays every tests/scenario/*.txt. `scenario_test --rewrite` writes the answers of the coordinator
// as it is now into the files; read the difference before keeping it.
#include "tests/scenario/scenario.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/base/file.h"

namespace trainctl {
namespace {

bool rewrite = false;

std::vector<std::string> ScenarioFiles() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(TRAINCTL_SOURCE_DIR "/tests/scenario")) {
    if (entry.path().extension() == ".txt" && entry.path().filename() != "CMakeLists.txt") {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Scenario : public testing::TestWithParam<std::string> {};

TEST_P(Scenario, GoesAsWritten) {
  const absl::StatusOr<std::string> written = ReadFile(GetParam());
  ASSERT_TRUE(written.ok()) << written.status();
  const std::string played = PlayScenario(*written);
  EXPECT_EQ(played, PlayScenario(*written)) << "the same calls gave other batches";
  EXPECT_FALSE(absl::StrContains(played, "\n  error")) << played;
  if (rewrite) {
    ASSERT_TRUE(WriteFileAtomically(GetParam(), played).ok());
  } else {
    EXPECT_EQ(*written, played);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Scenario, testing::ValuesIn(ScenarioFiles()), [](const auto& test) {
  return std::filesystem::path(test.param).stem().string();
});

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  trainctl::rewrite = argc > 1 && std::string(argv[1]) == "--rewrite";
  return RUN_ALL_TESTS();
}

// A folder for one test, removed at its end.
#ifndef TRAINCTL_TESTS_UNIT_SCRATCH_H_
#define TRAINCTL_TESTS_UNIT_SCRATCH_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/file.h"

namespace trainctl {

class Scratch {
 public:
  Scratch() {
    // In memory where possible: these tests sync thousands of files.
    const std::string parent = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir();
    std::string name = parent + "trainctl-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return JoinPath(path_, name); }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(File(name), std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_UNIT_SCRATCH_H_

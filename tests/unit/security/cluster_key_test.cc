#include "runtime/security/cluster_key.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(ClusterKey, IsWrittenForItsOwnerAloneAndReadBack) {
  Scratch scratch;
  const std::string path = scratch.File("config/trainctl/cluster.key");
  ASSERT_TRUE(WriteNewKey(path).ok());
  struct stat found;
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  EXPECT_EQ(found.st_size, 32);
  const absl::StatusOr<ClusterKey> key = ReadKey(path);
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_GT((std::set<uint8_t>(key->begin(), key->end()).size()), 8u);
  EXPECT_EQ(FilesIn(FolderOf(path)), std::vector<std::string>{"cluster.key"});
}

TEST(ClusterKey, IsNeverReplaced) {
  Scratch scratch;
  const std::string path = scratch.File("cluster.key");
  ASSERT_TRUE(WriteNewKey(path).ok());
  const ClusterKey before = *ReadKey(path);
  const absl::Status again = WriteNewKey(path);
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  EXPECT_EQ(*ReadKey(path), before);
  EXPECT_EQ(FilesIn(scratch.path()), std::vector<std::string>{"cluster.key"});
}

TEST(ClusterKey, ManyMakersAtOnceAgreeOnOneKey) {
  Scratch scratch;
  ASSERT_EQ(::setenv("XDG_CONFIG_HOME", scratch.path().c_str(), 1), 0);
  std::vector<pid_t> makers;
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      // What it read at once must be what everybody reads in the end.
      const bool written = WriteNewKey(UserKeyPath()).ok();
      const absl::StatusOr<ClusterKey> key = ReadKey(UserKeyPath());
      if (!key.ok()) ::_exit(2);
      scratch.Write(std::to_string(i), std::string(key->begin(), key->end()));
      ::_exit(written ? 1 : 0);
    }
    makers.push_back(pid);
  }
  int writers = 0;
  for (const pid_t pid : makers) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    writers += WEXITSTATUS(status);
  }
  EXPECT_EQ(writers, 1);
  const absl::StatusOr<ClusterKey> key = ReadKey(UserKeyPath());
  ASSERT_TRUE(key.ok());
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(*ReadFile(scratch.File(std::to_string(i))), std::string(key->begin(), key->end()));
  }
}

TEST(ClusterKey, OneThatOthersCanReadIsRefused) {
  Scratch scratch;
  const std::string path = scratch.File("cluster.key");
  ASSERT_TRUE(WriteNewKey(path).ok());
  for (const mode_t mode : {0640u, 0604u, 0660u, 0602u}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const absl::Status status = ReadKey(path).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_NE(status.message().find("chmod 600 " + path), absl::string_view::npos) << status;
  }
}

TEST(ClusterKey, OneThatAStrangerOwnsIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because only root can give files away";
  Scratch scratch;
  const std::string path = scratch.File("cluster.key");
  ASSERT_TRUE(WriteNewKey(path).ok());
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(ReadKey(path).status()));
}

TEST(ClusterKey, OneOfTheWrongLengthIsDamaged) {
  Scratch scratch;
  const std::string path = scratch.File("cluster.key");
  for (const size_t size : {size_t{0}, size_t{31}, size_t{33}, size_t{1} << 20}) {
    scratch.Write("cluster.key", std::string(size, 'k'));
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    EXPECT_TRUE(absl::IsDataLoss(ReadKey(path).status())) << size;
  }
  EXPECT_TRUE(absl::IsNotFound(ReadKey(scratch.File("none")).status()));
}

TEST(ClusterKey, AUsersOwnIsMadeAtFirstUseAndKept) {
  if (::access(SystemKeyPath().c_str(), F_OK) == 0) {
    GTEST_SKIP() << "skipped, because this machine has a cluster key";
  }
  Scratch scratch;
  ASSERT_EQ(::setenv("XDG_CONFIG_HOME", scratch.path().c_str(), 1), 0);
  const absl::StatusOr<std::string> first = ChooseKeyFile();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, scratch.File("trainctl/cluster.key"));
  const ClusterKey key = *ReadKey(*first);
  EXPECT_EQ(ChooseKeyFile().value(), *first);
  EXPECT_EQ(*ReadKey(*first), key);
}

}  // namespace
}  // namespace trainctl

#include "runtime/base/file.h"

#include <sys/stat.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

TEST(File, IsReadWholeUpToALimit) {
  Scratch scratch;
  const std::string text(200000, 'x');
  scratch.Write("f", text);
  EXPECT_EQ(*ReadFile(scratch.File("f")), text);
  EXPECT_EQ(*ReadFile(scratch.File("f"), text.size()), text);
  const auto limited = ReadFile(scratch.File("f"), text.size() - 1);
  EXPECT_EQ(limited.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(limited.status().message()), HasSubstr(scratch.File("f")));
  EXPECT_EQ(ReadFile(scratch.File("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST(File, AnAtomicWriteReplacesTheContentsAndLeavesNothingElse) {
  Scratch scratch;
  ASSERT_TRUE(WriteFileAtomically(scratch.File("f"), "one").ok());
  ASSERT_TRUE(WriteFileAtomically(scratch.File("f"), "two").ok());
  EXPECT_EQ(*ReadFile(scratch.File("f")), "two");
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST(File, AnAtomicWriteThatFailsKeepsTheOldContents) {
  Scratch scratch;
  std::filesystem::create_directory(scratch.File("d"));
  scratch.Write("d/f", "old");
  const absl::Status status = WriteFileAtomically(scratch.File("d"), "new");  // is a folder
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(*ReadFile(scratch.File("d/f")), "old");
  EXPECT_EQ(WriteFileAtomically(scratch.File("none/f"), "x").code(), absl::StatusCode::kNotFound);
}

TEST(File, FoldersAreMadeAsOftenAsAsked) {
  Scratch scratch;
  EXPECT_TRUE(MakeFolders(scratch.File("a/b/c")).ok());
  EXPECT_TRUE(MakeFolders(scratch.File("a/b/c")).ok());
  EXPECT_TRUE(std::filesystem::is_directory(scratch.File("a/b/c")));
  scratch.Write("file", "");
  EXPECT_FALSE(MakeFolders(scratch.File("file")).ok());
  EXPECT_FALSE(MakeFolders(scratch.File("file/below")).ok());
}

TEST(File, PathsAreJoinedAndSplit) {
  EXPECT_EQ(JoinPath("/a", "b"), "/a/b");
  EXPECT_EQ(JoinPath("/a/", "b"), "/a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(FolderOf("/a/b"), "/a");
  EXPECT_EQ(FolderOf("/a"), "/");
  EXPECT_EQ(FolderOf("a"), ".");
  EXPECT_TRUE(std::filesystem::is_directory(ProgramFolder()));
}

}  // namespace
}  // namespace trainctl

// Writer, reader and manifest together, on a real folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/checkpoint/digest.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class CheckpointTest : public testing::Test {
 protected:
  void Commit(int64_t step, int64_t epoch = 0) {
    CheckpointWriter writer(scratch_.path(), Epoch(epoch));
    const absl::Status status = WriteSample(writer, Step(step), Epoch(epoch));
    ASSERT_TRUE(status.ok()) << status;
  }
  CheckpointSearch Search() {
    auto search = NewestValid(scratch_.path());
    EXPECT_TRUE(search.ok()) << search.status();
    return *std::move(search);
  }
  std::string Path(int64_t step, const std::string& file) {
    return JoinPath(scratch_.File(StepFolderName(Step(step))), file);
  }
  std::string Read(const std::string& path) { return ReadFile(path).value(); }
  void Replace(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  Scratch scratch_;
};

TEST_F(CheckpointTest, PublishedStepIsFoundAndLoadsWhole) {
  Commit(100);
  Commit(200);
  EXPECT_THAT(ListCheckpoints(scratch_.path()).value(), ElementsAre(Step(100), Step(200)));
  const CheckpointSearch search = Search();
  ASSERT_TRUE(search.found.has_value());
  EXPECT_EQ(search.found->manifest.step, Step(200));
  EXPECT_TRUE(CheckSample(*search.found).ok());
  EXPECT_THAT(NamesIn(scratch_.path()), ElementsAre("step-000000100", "step-000000200"));
}

TEST_F(CheckpointTest, EmptyOrMissingFolderHasNone) {
  EXPECT_FALSE(Search().found.has_value());
  EXPECT_FALSE(NewestValid(scratch_.File("missing")).value().found.has_value());
}

TEST_F(CheckpointTest, UnfinishedFolderDoesNotExistForReadersAndIsSwept) {
  Commit(100);
  CheckpointWriter writer(scratch_.path(), Epoch(3));
  const float value = 1;
  ASSERT_TRUE(writer.WriteShard(Step(200), 0, 2, {{"a", Dtype::kF32, {}, &value}}, {}).ok());
  EXPECT_EQ(Search().found->manifest.step, Step(100));
  EXPECT_THAT(Search().rejected, IsEmpty());
  EXPECT_THAT(NamesIn(scratch_.path()), ElementsAre(".step-000000200.epoch-3", "step-000000100"));
  ASSERT_TRUE(CheckpointWriter(scratch_.path(), Epoch(4)).Sweep().ok());
  EXPECT_THAT(NamesIn(scratch_.path()), ElementsAre("step-000000100"));
}

// As a folder of somebody else, or of a file system that is mounted read-only.
class UnwritableDisk : public Disk {
 public:
  absl::StatusOr<Fd> CreateFile(const std::string& path) override {
    return absl::PermissionDeniedError("create " + path + ": Permission denied");
  }
};

TEST_F(CheckpointTest, ProbeTellsWhetherTheFolderCanBeWrittenAndLeavesNothing) {
  EXPECT_TRUE(CheckpointWriter(scratch_.path(), Epoch(0)).Probe(1).ok());
  EXPECT_THAT(NamesIn(scratch_.path()), IsEmpty());
  UnwritableDisk disk;
  const absl::Status status = CheckpointWriter(scratch_.path(), Epoch(0), disk).Probe(1);
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(scratch_.path()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("that this user may write"));
}

TEST_F(CheckpointTest, ProbeOfAKilledRankIsSwept) {
  scratch_.Write(".probe-epoch-0-rank-1", "");
  ASSERT_TRUE(CheckpointWriter(scratch_.path(), Epoch(1)).Sweep().ok());
  EXPECT_THAT(NamesIn(scratch_.path()), IsEmpty());
}

TEST_F(CheckpointTest, LateWriterOfAnEarlierEpochCannotPublishAfterTheSweep) {
  CheckpointWriter late(scratch_.path(), Epoch(0));
  const float value = 1;
  auto shard = late.WriteShard(Step(200), 0, 1, {{"a", Dtype::kF32, {}, &value}}, {});
  ASSERT_TRUE(shard.ok());
  ASSERT_TRUE(CheckpointWriter(scratch_.path(), Epoch(1)).Sweep().ok());
  Manifest manifest;
  manifest.step = Step(200);
  manifest.world_size = 1;
  manifest.shards = {*shard};
  EXPECT_FALSE(late.Commit(manifest).ok());
  EXPECT_THAT(ListCheckpoints(scratch_.path()).value(), IsEmpty());
}

TEST_F(CheckpointTest, CommitRefusesAShardThatIsNotThereWithItsLength) {
  CheckpointWriter writer(scratch_.path(), Epoch(0));
  const float value = 1;
  auto shard = writer.WriteShard(Step(1), 0, 1, {{"a", Dtype::kF32, {}, &value}}, {});
  ASSERT_TRUE(shard.ok());
  Manifest manifest;
  manifest.step = Step(1);
  manifest.world_size = 1;
  shard->length += 1;
  manifest.shards = {*shard};
  const absl::Status status = writer.Commit(manifest);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("its rank reported"));
  EXPECT_THAT(NamesIn(scratch_.path()), IsEmpty());
}

TEST_F(CheckpointTest, SameStepOfALaterEpochReplacesTheOlder) {
  Commit(100, 0);
  Replace(Path(100, ShardFileName(1, kSampleWorld)), "damaged");
  EXPECT_FALSE(Search().found.has_value());
  Commit(100, 1);
  ASSERT_TRUE(Search().found.has_value());
  EXPECT_EQ(Search().found->manifest.epoch, Epoch(1));
  EXPECT_THAT(NamesIn(scratch_.path()), ElementsAre("step-000000100"));
}

TEST_F(CheckpointTest, ShardTruncatedAtAnyByteFallsBackAndSaysWhy) {
  Commit(100);
  Commit(200);
  const std::string path = Path(200, ShardFileName(2, kSampleWorld));
  const std::string whole = Read(path);
  for (size_t length = 0; length < whole.size(); ++length) {
    Replace(path, whole.substr(0, length));
    const CheckpointSearch search = Search();
    ASSERT_TRUE(search.found.has_value());
    ASSERT_EQ(search.found->manifest.step, Step(100)) << length;
    ASSERT_THAT(search.rejected, SizeIs(1));
    ASSERT_EQ(search.rejected[0].step, Step(200));
    ASSERT_THAT(search.rejected[0].reason, HasSubstr("the manifest says"));
  }
}

TEST_F(CheckpointTest, AnyFlippedBitOfAShardIsFoundAtLoad) {
  Commit(100);
  const std::string path = Path(100, ShardFileName(3, kSampleWorld));
  const std::string whole = Read(path);
  const FoundCheckpoint found = *Search().found;
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string flipped = whole;
    flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << (byte % 8)));
    Replace(path, flipped);
    const auto shard = LoadShard(found, 3);
    ASSERT_TRUE(absl::IsDataLoss(shard.status())) << byte;
    ASSERT_THAT(std::string(shard.status().message()), HasSubstr("its digest is"));
  }
}

TEST_F(CheckpointTest, AnyFlippedBitOfTheManifestIsRefusedOrChangesNothing) {
  Commit(100);
  const std::string whole = Read(Path(100, kManifestFile));
  const auto original = ParseManifest(whole);
  ASSERT_TRUE(original.ok()) << original.status();
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto manifest = ParseManifest(flipped);
    if (!manifest.ok()) continue;
    EXPECT_EQ(FormatManifest(*manifest).value(), FormatManifest(*original).value()) << bit;
  }
}

TEST_F(CheckpointTest, FolderThatIsAFileAMissingManifestAndAForeignNameAreNoCheckpoints) {
  Commit(100);
  scratch_.Write("step-000000300", "a file");
  std::filesystem::create_directory(scratch_.File("step-000000400"));
  std::filesystem::create_directory(scratch_.File("step-5"));
  const CheckpointSearch search = Search();
  EXPECT_EQ(search.found->manifest.step, Step(100));
  ASSERT_THAT(search.rejected, SizeIs(2));
  EXPECT_EQ(search.rejected[0].step, Step(400));
}

TEST_F(CheckpointTest, FolderRenamedToAnotherStepIsRefused) {
  Commit(100);
  std::filesystem::rename(scratch_.File("step-000000100"), scratch_.File("step-000000900"));
  EXPECT_THAT(Search().rejected[0].reason, HasSubstr("of step 100"));
}

TEST_F(CheckpointTest, DeleteRemovesOneStepAndMissingIsFine) {
  Commit(100);
  Commit(200);
  CheckpointWriter writer(scratch_.path(), Epoch(0));
  EXPECT_TRUE(writer.Delete(Step(100)).ok());
  EXPECT_TRUE(writer.Delete(Step(100)).ok());
  EXPECT_THAT(NamesIn(scratch_.path()), ElementsAre("step-000000200"));
}

TEST_F(CheckpointTest, UnwritableFolderSaysWhatToDo) {
  ::chmod(scratch_.path().c_str(), 0500);
  const uid_t user = ::geteuid();
  // Root may write everywhere, so it becomes nobody for a moment.
  ASSERT_EQ(::seteuid(user == 0 ? 65534 : user), 0);
  CheckpointWriter writer(scratch_.File("inside"), Epoch(0));
  const absl::Status status = writer.Open();
  ASSERT_EQ(::seteuid(user), 0);
  ::chmod(scratch_.path().c_str(), 0700);
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("that this user may write"));
}

TEST(Manifest, RefusesWhatItDoesNotUnderstand) {
  const struct {
    std::string text;
    const char* reason;
  } cases[] = {
      {"", "not a JSON object"},
      {"[1]", "not a JSON object"},
      {R"({"schema":2})", "schema 2"},
      {R"({"schema":1})", "\"digest\""},
      {R"({"schema":1,"digest":"xxh3-128:0"})", "it says xxh3-128:0"},
      {std::string(1000000, '['), "not a JSON object"},
      {R"({"schema":1,"state":)" + std::string(100000, '[') + std::string(100000, ']') + "}",
       "not a JSON object"},
  };
  for (const auto& c : cases) {
    const auto manifest = ParseManifest(c.text);
    ASSERT_TRUE(absl::IsDataLoss(manifest.status()));
    EXPECT_THAT(std::string(manifest.status().message()), HasSubstr(c.reason));
  }
}

TEST(Manifest, RefusesAShardNameThatLeadsElsewhere) {
  Manifest manifest;
  manifest.world_size = 1;
  manifest.shards = {{"../shard-00000-of-00001.safetensors", 1, "xxh3-128:0"}};
  const auto parsed = ParseManifest(FormatManifest(manifest).value());
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("has the name ../shard"));
}

TEST(Manifest, KeepsEveryFieldAndTheStateExactly) {
  Manifest manifest;
  manifest.step = Step(123456789);
  manifest.term = Term(7);
  manifest.epoch = Epoch(3);
  manifest.world_size = 2;
  manifest.shards = {{ShardFileName(0, 2), 10, "xxh3-128:aa"},
                     {ShardFileName(1, 2), 0, "xxh3-128:b"}};
  manifest.state = R"({"lr":0.0010000000000000002,"name":"é","seed":18446744073709551615})";
  const auto parsed = ParseManifest(FormatManifest(manifest).value());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->step, manifest.step);
  EXPECT_EQ(parsed->term, manifest.term);
  EXPECT_EQ(parsed->epoch, manifest.epoch);
  EXPECT_EQ(parsed->shards, manifest.shards);
  EXPECT_EQ(parsed->state, manifest.state);
  manifest.state = "[]";
  EXPECT_TRUE(absl::IsInvalidArgument(FormatManifest(manifest).status()));
}

TEST(Digest, IsTheSameInOnePieceAndInMany) {
  Digest digest;
  const std::string text = "recovery point";
  for (char c : text) digest.Add(&c, 1);
  EXPECT_EQ(digest.Text(), DigestOf(text));
  // The empty input's published XXH3 128 value.
  EXPECT_EQ(DigestOf(""), "xxh3-128:99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace trainctl

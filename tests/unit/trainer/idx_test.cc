#include "runtime/trainer/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "runtime/trainer/image_data.h"
#include "tests/unit/scratch.h"
#include "tests/unit/trainer/idx_bytes.h"

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kFashionMnist[] = "/usr/share/datasets/fashion-mnist";

void WriteGzip(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  gzclose(file);
}

TEST(Idx, ReadsPlainAndCompressed) {
  Scratch scratch;
  const std::string bytes = Idx({2, 1, 3}, "abcdef");
  scratch.Write("plain", bytes);
  WriteGzip(scratch.File("packed.gz"), bytes);
  for (const char* name : {"plain", "packed"}) {
    const auto array = ReadIdx(scratch.File(name), 3);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_THAT(array->shape, ElementsAre(2, 1, 3));
    EXPECT_EQ(std::string(array->values.begin(), array->values.end()), "abcdef");
  }
}

struct BadIdx {
  std::string bytes;
  absl::StatusCode code;
  const char* reason;
};

TEST(Idx, RefusesEveryBadFileAndSaysWhy) {
  const uint32_t big = 0xFFFFFFFF;
  const BadIdx files[] = {
      {"", absl::StatusCode::kDataLoss, "truncated, has 0 bytes"},
      {Idx({2, 2, 2}, "").substr(0, 10), absl::StatusCode::kDataLoss, "truncated, has 10 bytes"},
      {Idx({9, 9, 9, 9}, ""), absl::StatusCode::kInvalidArgument, "magic number 0x00000804"},
      {"a text file, not data", absl::StatusCode::kInvalidArgument, "magic number 0x61207465"},
      {Idx({2, 2, 2}, "abcdefg"), absl::StatusCode::kDataLoss, "holds 7 of 8 elements (2 x 2 x 2)"},
      {Idx({2, 2, 2}, "abcdefghi"), absl::StatusCode::kDataLoss, "longer than its header"},
      {Idx({big, big, big}, "a"), absl::StatusCode::kInvalidArgument, "dimension 2"},
      {Idx({1u << 31, 1, 1}, "a"), absl::StatusCode::kDataLoss, "holds 1 of 2147483648"},
  };
  for (const BadIdx& bad : files) {
    Scratch scratch;
    scratch.Write("file", bad.bytes);
    const auto array = ReadIdx(scratch.File("file"), 3);
    EXPECT_EQ(array.status().code(), bad.code) << array.status();
    EXPECT_THAT(std::string(array.status().message()), HasSubstr(bad.reason));
    EXPECT_THAT(std::string(array.status().message()), HasSubstr(scratch.File("file")));
  }
}

TEST(Idx, TruncatedOrFlippedGzipIsRefusedAtAnyByte) {
  Scratch scratch;
  WriteGzip(scratch.File("whole"), Idx({4, 5, 5}, std::string(100, 'x')));
  const std::string whole = ReadFile(scratch.File("whole")).value();
  for (size_t length = 1; length < whole.size(); ++length) {
    scratch.Write("file", whole.substr(0, length));
    EXPECT_FALSE(ReadIdx(scratch.File("file"), 3).ok()) << length;
  }
}

TEST(Idx, MissingFileIsNotFound) {
  Scratch scratch;
  const auto array = ReadIdx(scratch.File("none"), 1);
  EXPECT_TRUE(absl::IsNotFound(array.status()));
  EXPECT_THAT(std::string(array.status().message()), HasSubstr("none.gz exists"));
}

TEST(Images, OfTheUserAreReadNormalisedInTheOrderAsked) {
  Scratch scratch;
  scratch.Write("my-images-idx3-ubyte", Idx({3, 1, 2}, std::string("\0\xff\1\2\3\4", 6)));
  scratch.Write("my-labels-idx1-ubyte", Idx({3}, std::string("\0\1\x9", 3)));
  int64_t inputs = 0;
  const auto data = OpenImages(scratch.path(), "my", &inputs);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(inputs, 2);
  EXPECT_EQ((*data)->size(), 3);
  BatchMemory memory;
  const auto batch = (*data)->Read({2, 0}, memory);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->count, 2);
  EXPECT_THAT(memory.targets, ElementsAre(9, 0));
  EXPECT_THAT(memory.ids, ElementsAre(2, 0));
  EXPECT_FLOAT_EQ(batch->features[2], -0.2860f / 0.3530f);
  EXPECT_FLOAT_EQ(batch->features[3], (1 - 0.2860f) / 0.3530f);
}

TEST(Images, RefuseALabelOutOfRangeAndCountsThatDiffer) {
  Scratch scratch;
  scratch.Write("a-images-idx3-ubyte", Idx({2, 1, 1}, "xx"));
  scratch.Write("a-labels-idx1-ubyte", Idx({2}, std::string("\1\xa", 2)));
  scratch.Write("b-images-idx3-ubyte", Idx({2, 1, 1}, "xx"));
  scratch.Write("b-labels-idx1-ubyte", Idx({1}, std::string("\1", 1)));
  int64_t inputs = 0;
  EXPECT_THAT(std::string(OpenImages(scratch.path(), "a", &inputs).status().message()),
              HasSubstr("label 10 of sample 1 is out of range 0..9"));
  EXPECT_THAT(std::string(OpenImages(scratch.path(), "b", &inputs).status().message()),
              HasSubstr("has 2 images"));
  EXPECT_THAT(std::string(OpenImages(scratch.path(), "none", &inputs).status().message()),
              HasSubstr("apt-get install dataset-fashion-mnist"));
}

class FashionMnist : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFashionMnist)) {
      GTEST_SKIP() << "skipped, because " << kFashionMnist
                   << " is missing (package dataset-fashion-mnist)";
    }
  }
};

TEST_F(FashionMnist, OpensWithItsKnownSizesAndStatistics) {
  DataOptions options;
  options.path = kFashionMnist;
  const auto data = OpenData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 60000);
  EXPECT_EQ(data->evaluation->size(), 10000);
  EXPECT_EQ(data->inputs, 784);
  EXPECT_EQ(data->classes, 10);
  std::vector<int64_t> all(60000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  BatchMemory memory;
  ASSERT_TRUE(data->train->Read(all, memory).ok());
  double sum = 0, squares = 0;
  for (float x : memory.features) {
    sum += x;
    squares += double{x} * x;
  }
  const double n = static_cast<double>(memory.features.size());
  EXPECT_NEAR(sum / n, 0, 1e-3);
  EXPECT_NEAR(squares / n, 1, 1e-3);
}

TEST_F(FashionMnist, DamagedContentOfTheSameLengthIsRefused) {
  Scratch scratch;
  auto labels = ReadIdx(JoinPath(kFashionMnist, "t10k-labels-idx1-ubyte"), 1);
  ASSERT_TRUE(labels.ok());
  labels->values[5000] ^= 1;
  scratch.Write("t10k-labels-idx1-ubyte",
                Idx({10000}, std::string(labels->values.begin(), labels->values.end())));
  std::filesystem::create_symlink(JoinPath(kFashionMnist, "t10k-images-idx3-ubyte.gz"),
                                  scratch.File("t10k-images-idx3-ubyte.gz"));
  int64_t inputs = 0;
  const auto data = OpenImages(scratch.path(), "t10k", &inputs);
  EXPECT_TRUE(absl::IsDataLoss(data.status()));
  EXPECT_THAT(std::string(data.status().message()), HasSubstr("t10k-labels-idx1-ubyte: damaged"));
}

}  // namespace
}  // namespace trainctl

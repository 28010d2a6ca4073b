#include "runtime/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

using testing::HasSubstr;

std::string Written(const std::vector<TensorView>& tensors,
                    const std::map<std::string, std::string>& metadata = {}) {
  std::string bytes;
  const absl::Status status = WriteSafetensors(tensors, metadata, [&](absl::string_view piece) {
    bytes.append(piece.data(), piece.size());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

std::string FileOf(const std::string& header, const std::string& buffer) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + buffer;
}

TEST(Safetensors, WritesTheDocumentedBytes) {
  const float values[] = {1.0f, -2.0f};
  const uint8_t flag = 7;
  const std::string expected_header =
      R"({"__metadata__":{"step":"5"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  const std::string bytes =
      Written({{"a", Dtype::kU8, {}, &flag}, {"w", Dtype::kF32, {2, 1}, values}}, {{"step", "5"}});
  const size_t padded = (expected_header.size() + 7) / 8 * 8;
  ASSERT_EQ(bytes.size(), 8 + padded + 9);
  EXPECT_EQ(bytes.substr(8, expected_header.size()), expected_header);
  EXPECT_EQ(static_cast<uint8_t>(bytes[0]), padded);
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + padded, values, 8), 0);
  EXPECT_EQ(bytes.back(), 7);
}

TEST(Safetensors, ReadsBackEveryDtypeShapeAndMetadata) {
  const std::vector<float> floats = {0.5f, 1.5f, -0.0f, 3e-40f, 4, 5};
  const double real = 1.0 / 3;
  const int64_t negative = -9;
  const uint64_t large = ~uint64_t{0};
  const auto file =
      SafetensorsFile::Parse(Written({{"f32", Dtype::kF32, {2, 3}, floats.data()},
                                      {"f64", Dtype::kF64, {}, &real},
                                      {"i64", Dtype::kI64, {1}, &negative},
                                      {"u64", Dtype::kU64, {1, 1}, &large},
                                      {"none", Dtype::kF32, {0, 4}, nullptr}},
                                     {{"format", "trainctl"}, {"name", "ünïcode \"x\""}}));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata().at("name"), "ünïcode \"x\"");
  const std::vector<TensorView> tensors = file->tensors();
  ASSERT_EQ(tensors.size(), 5u);
  EXPECT_EQ(tensors[0].name, "f32");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(tensors[0].data, floats.data(), 24), 0);
  EXPECT_EQ(std::memcmp(tensors[1].data, &real, 8), 0);
  EXPECT_EQ(std::memcmp(tensors[2].data, &negative, 8), 0);
  EXPECT_EQ(tensors[3].shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(std::memcmp(tensors[4].data, &large, 8), 0);
}

TEST(Safetensors, ErrorOfTheSinkEndsTheWrite) {
  int calls = 0;
  const float value = 1;
  const absl::Status status = WriteSafetensors({{"a", Dtype::kF32, {}, &value}}, {}, [&](auto) {
    ++calls;
    return absl::ResourceExhaustedError("full");
  });
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(calls, 1);
}

struct BadFile {
  std::string header;
  size_t buffer;
  const char* reason;
};

TEST(Safetensors, RefusesEveryBadLayoutAndSaysWhy) {
  const std::string big = "9223372036854775807";
  const BadFile files[] = {
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "hole"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "overlap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "the buffer has 5"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "the buffer has 4"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "shape does not fit"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "shape does not fit"},
      {absl::StrCat(R"({"a":{"dtype":"F64","shape":[)", big, ",", big,
                    R"(],"data_offsets":[0,8]}})"),
       8, "shape does not fit"},
      {absl::StrCat(R"({"a":{"dtype":"U8","shape":[)", big, R"(],"data_offsets":[0,)", big, "]}}"),
       4, "the buffer has 4"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
       "too large"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "negative"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "fraction"},
      {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "F33"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "all needed"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "two numbers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "wrong place"},
      {R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4, "twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"},
      {R"({"__metadata__":{"a":1}})", 0, "wrong place"},
      {R"({"a":{"dtype":"F32","extra":1}})", 0, "unknown key"},
      {R"({"a":[1]})", 0, "wrong place"},
      {R"({"a":)", 0, "JSON error"},
      {"[]", 0, "begin with '{'"},
      {"", 0, "begin with '{'"},
      {std::string(100000, '{'), 0, "JSON error"},
      {R"({"a":)" + std::string(100000, '['), 0, "wrong place"},
  };
  for (const BadFile& bad : files) {
    const auto file = SafetensorsFile::Parse(FileOf(bad.header, std::string(bad.buffer, 'x')));
    ASSERT_FALSE(file.ok()) << bad.header;
    EXPECT_TRUE(absl::IsInvalidArgument(file.status()));
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(bad.reason)) << bad.header;
  }
}

TEST(Safetensors, RefusesAHeaderLengthBeyondTheFileOrTheFormat) {
  for (const uint64_t claimed : {uint64_t{3}, uint64_t{100'000'001}, ~uint64_t{0}}) {
    std::string bytes = FileOf("{}", "");
    std::memcpy(bytes.data(), &claimed, 8);
    EXPECT_FALSE(SafetensorsFile::Parse(bytes).ok());
  }
  EXPECT_FALSE(SafetensorsFile::Parse("").ok());
  EXPECT_FALSE(SafetensorsFile::Parse("1234567").ok());
  EXPECT_TRUE(SafetensorsFile::Parse(FileOf("{}", "")).ok());
}

TEST(Safetensors, EveryTruncationAndMutationIsRefusedOrWellFormed) {
  const float values[] = {1, 2, 3};
  const std::string bytes =
      Written({{"a", Dtype::kF32, {3}, values}, {"b", Dtype::kU8, {2}, "xy"}}, {{"k", "v"}});
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(SafetensorsFile::Parse(bytes.substr(0, length)).ok()) << length;
  }
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string mutated = bytes;
    for (int change = 0; change < 1 + round % 4; ++change) {
      mutated[random() % mutated.size()] = static_cast<char>(random());
    }
    const auto file = SafetensorsFile::Parse(mutated);
    if (!file.ok()) continue;
    size_t total = 0;
    for (const TensorView& tensor : file->tensors()) {
      size_t size = DtypeBytes(tensor.dtype);
      for (int64_t extent : tensor.shape) size *= static_cast<size_t>(extent);
      total += size;
    }
    EXPECT_LE(total, bytes.size());
  }
}

}  // namespace
}  // namespace trainctl

#include "runtime/trainer/token_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string TokenFile(const std::vector<int>& tokens, uint32_t vocabulary, uint64_t count,
                      uint32_t version = 1) {
  std::string bytes = absl::StrCat("TCTOKENS", LittleEndian(version, 4),
                                   LittleEndian(vocabulary, 4), LittleEndian(count, 8));
  for (int token : tokens) bytes += LittleEndian(static_cast<uint64_t>(token), 2);
  return bytes;
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(Text, WindowsFollowEachOtherAndTheEndIsForValidation) {
  Scratch scratch;
  scratch.Write("text", "abcdefghijklmnopqrst");  // 20 bytes: 15 to train, 5 to validate
  DataOptions options;
  options.kind = DataOptions::Kind::kText;
  options.path = scratch.File("text");
  options.context = 4;
  options.validation = 0.25;
  const auto data = OpenData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 3);
  EXPECT_EQ(data->evaluation->size(), 1);
  EXPECT_EQ(data->train->targets_per_sample(), 4);
  EXPECT_EQ(data->classes, 256);
  EXPECT_STREQ(data->evaluation_name, "validation");
  BatchMemory memory;
  const auto batch = data->train->Read({2, 0}, memory);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(std::string(batch->tokens, batch->tokens + 8), "ijklabcd");
  EXPECT_EQ(std::string(batch->targets, batch->targets + 8), "jklmbcde");
  const auto validation = data->evaluation->Read({0}, memory);
  EXPECT_EQ(std::string(validation->tokens, validation->tokens + 4), "pqrs");
  EXPECT_EQ(std::string(validation->targets, validation->targets + 4), "qrst");
}

TEST(Text, RefusesWhatIsNotUtf8AndNamesTheByte) {
  for (const char* bad : {"\x80", "\xc1\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80",
                          "\xf4\x90\x80\x80", "\xe2\x82", "\xff", "\xf0\x9f\x98\x41"}) {
    Scratch scratch;
    scratch.Write("text", absl::StrCat("grün", bad));
    EXPECT_THAT(MessageOf(OpenText(scratch.File("text")).status()),
                HasSubstr("byte 5 is not UTF-8"));
  }
  Scratch scratch;
  scratch.Write("text", "é € 😀 \xef\xbf\xbf");
  EXPECT_TRUE(OpenText(scratch.File("text")).ok());
}

TEST(Text, MissingFileAndTooLittleTextSayWhatToDo) {
  Scratch scratch;
  EXPECT_THAT(MessageOf(OpenText(scratch.File("none")).status()), HasSubstr("train.data.path"));
  scratch.Write("text", "short");
  const auto data = SplitTokens(OpenText(scratch.File("text")).value(), "text", 8, 0.5);
  EXPECT_THAT(MessageOf(data.status()), HasSubstr("at least context + 1 = 9"));
}

TEST(TokenFile, ReadsItsTokens) {
  Scratch scratch;
  scratch.Write("tokens", TokenFile({0, 1, 50000, 65535, 7, 8}, 65536, 6));
  const auto source = OpenTokenFile(scratch.File("tokens"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->size(), 6);
  EXPECT_EQ((*source)->vocabulary(), 65536);
  int32_t tokens[3];
  ASSERT_TRUE((*source)->Read(2, 3, tokens).ok());
  EXPECT_THAT(tokens, ElementsAre(50000, 65535, 7));
}

TEST(TokenFile, TokenOutOfRangeIsFoundWhenRead) {
  Scratch scratch;
  scratch.Write("tokens", TokenFile({0, 1, 10, 3}, 10, 4));
  const auto source = OpenTokenFile(scratch.File("tokens"));
  ASSERT_TRUE(source.ok());
  int32_t tokens[4];
  EXPECT_TRUE((*source)->Read(0, 2, tokens).ok());
  EXPECT_THAT(MessageOf((*source)->Read(1, 3, tokens)),
              HasSubstr("token 10 at position 2 is out of range, the vocabulary has 10"));
}

TEST(TokenFile, RefusesEveryBadHeaderAndSaysWhy) {
  const struct {
    std::string bytes;
    const char* reason;
  } files[] = {
      {"", "truncated, has 0 bytes"},
      {TokenFile({}, 10, 0).substr(0, 23), "truncated, has 23 bytes"},
      {"once upon a time there was a text file", "wrong magic"},
      {TokenFile({1}, 10, 1, 2), "version 2"},
      {TokenFile({1}, 0, 1), "vocabulary 0"},
      {TokenFile({1}, 65537, 1), "vocabulary 65537"},
      {TokenFile({1, 2}, 10, 3), "claims 3 tokens, the file holds 2; it is truncated"},
      {TokenFile({1, 2}, 10, 1), "claims 1 tokens, the file holds 2"},
      {TokenFile({1, 2}, 10, 2) + "x", "claims 2 tokens"},
      {TokenFile({1}, 10, uint64_t{1} << 63), "it is truncated"},
      {TokenFile({1}, 10, ~uint64_t{0}), "it is truncated"},
  };
  for (const auto& file : files) {
    Scratch scratch;
    scratch.Write("tokens", file.bytes);
    EXPECT_THAT(MessageOf(OpenTokenFile(scratch.File("tokens")).status()), HasSubstr(file.reason));
  }
}

}  // namespace
}  // namespace trainctl

#include "runtime/trainer/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kConfig[] = R"({
  "model": {"kind": "mlp", "hidden": [512, 256]},
  "data": {"kind": "fashion_mnist", "path": "/data"},
  "optimizer": {"kind": "adamw", "lr": 1e-3, "weight_decay": 0.01, "clip": 1.0,
                "schedule": {"warmup": 100, "decay": "cosine"}},
  "batch": {"global": 256, "micro": 64},
  "steps": 2000,
  "precision": "auto",
  "seed": 7,
  "checkpoint": {"dir": "/checkpoints", "every_steps": 50, "keep": 2}
})";

TEST(TrainConfig, ReadsTheJobFilesSections) {
  const auto config = ParseTrainConfig(kConfig);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->model.hidden, ElementsAre(512, 256));
  EXPECT_EQ(config->data.path, "/data");
  EXPECT_EQ(config->schedule.peak, 1e-3);
  EXPECT_EQ(config->schedule.warmup_steps, 100);
  EXPECT_EQ(config->schedule.decay, Schedule::Decay::kCosine);
  EXPECT_EQ(config->clip, 1.0);
  EXPECT_EQ(config->global_batch, 256);
  EXPECT_EQ(config->micro_batch, 64);
  EXPECT_EQ(config->steps, 2000);
  EXPECT_EQ(config->seed, 7u);
  EXPECT_EQ(config->checkpoint_folder, "/checkpoints");
  EXPECT_EQ(config->checkpoint_every, 50);
  EXPECT_EQ(config->checkpoint_keep, 2);
}

TEST(TrainConfig, WhatIsLeftOutHasItsDefault) {
  const auto config = ParseTrainConfig(
      R"({"model":{"kind":"gpt"},"data":{"kind":"text","path":"t"},"optimizer":{"kind":"sgd"},
          "batch":{"global":8},"epochs":1.5})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->data.context, config->model.context);
  EXPECT_EQ(config->passes, 1.5);
  EXPECT_FALSE(config->steps.has_value());
  EXPECT_EQ(config->checkpoint_folder, "");
  EXPECT_EQ(config->seed, 1u);
}

TEST(TrainConfig, RefusesEveryMistakeAndNamesTheKey) {
  const struct {
    const char* from;
    const char* to;
    const char* reason;
  } mistakes[] = {
      {"\"seed\": 7", "\"sed\": 7", "sed is not known; known here: batch, checkpoint"},
      {"\"hidden\"", "\"hiden\"", "model.hiden is not known"},
      {"\"warmup\"", "\"warm\"", "optimizer.schedule.warm is not known"},
      {"\"every_steps\"", "\"every\"", "checkpoint.every is not known"},
      {"\"seed\": 7", "\"seed\": -7", "seed must be a whole number from 0"},
      {"\"seed\": 7", "\"seed\": 1.5", "seed must be a whole number"},
      {"\"seed\": 7", "\"seed\": 18446744073709551615", "seed must be a whole number"},
      {"\"seed\": 7", "\"seed\": \"7\"", "seed must be a whole number"},
      {"\"global\": 256", "\"global\": 0", "batch.global must be"},
      {"\"global\": 256, ", "", "batch.global is missing"},
      {"[512, 256]", "[512, 0]", "model.hidden must be a list"},
      {"[512, 256]", "512", "model.hidden must be a list"},
      {"\"lr\": 1e-3", "\"lr\": 1e999", "not a JSON object"},
      {"\"lr\": 1e-3", "\"lr\": -1", "optimizer.lr must be a number from 0"},
      {"\"kind\": \"adamw\"", "\"kind\": \"adam\"", "optimizer.kind must be one of: adamw, sgd"},
      {"\"kind\": \"mlp\"", "\"kind\": 5", "model.kind must be one of: mlp, gpt"},
      {"\"precision\": \"auto\"", "\"precision\": \"int8\"",
       "precision must be one of: auto, fp32, tf32, bf16, fp16"},
      {"\"steps\": 2000", "\"steps\": 2000, \"epochs\": 2", "and not both"},
      {"\"steps\": 2000,", "", "steps or epochs must be given"},
      {"{\"warmup\": 100, \"decay\": \"cosine\"}", "3", "optimizer.schedule must be an object"},
      {"\"path\": \"/data\"", "\"path\": 3", "data.path must be a string"},
  };
  for (const auto& mistake : mistakes) {
    const std::string text = absl::StrReplaceAll(kConfig, {{mistake.from, mistake.to}});
    ASSERT_NE(text, kConfig) << mistake.from;
    const auto config = ParseTrainConfig(text);
    ASSERT_TRUE(absl::IsInvalidArgument(config.status())) << text;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(mistake.reason));
  }
  EXPECT_FALSE(ParseTrainConfig("").ok());
  EXPECT_FALSE(ParseTrainConfig(std::string(1000000, '[')).ok());
  EXPECT_FALSE(ParseTrainConfig("{\"model\":" + std::string(1000000, '[')).ok());
  EXPECT_FALSE(
      ParseTrainConfig("{\"model\":" + std::string(100000, '[') + std::string(100000, ']') + "}")
          .ok());
}

TEST(TrainConfig, ModelAndDataMustFit) {
  const auto config = ParseTrainConfig(kConfig);
  ASSERT_TRUE(config.ok());
  OpenedData tokens;
  tokens.classes = 256;
  EXPECT_THAT(std::string(MakeModel(*config, tokens).status().message()),
              HasSubstr("the data holds tokens"));
}

}  // namespace
}  // namespace trainctl

#include "launcher/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kWhole[] = R"(name: fashion-mnist
nodes: {workers: 2}
train:
  model: {kind: mlp, hidden: [512, 256]}
  data: {kind: fashion_mnist, path: /usr/share/datasets/fashion-mnist}
  optimizer: {kind: adamw, lr: 1e-3, weight_decay: 0.01, clip: 1.0, schedule: {warmup: 100, decay: cosine}}
  batch: {global: 256, micro: 64}
  steps: 2000
  precision: auto
  seed: 1
checkpoint: {dir: checkpoints, every: 200 steps, keep: 3}
restart: {max: 3, window: 10 in 1h}
env: {OMP_NUM_THREADS: "1"}
preemptible: true
)";

std::string FileRefusal(const std::string& text) {
  const absl::StatusOr<JobFile> job = ParseJobFile(text, "job.yaml");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(job.status().message());
}

// kWhole with one piece replaced.
std::string With(const std::string& old, const std::string& fresh) {
  std::string text = kWhole;
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), fresh);
}

TEST(JobFile, IsReadWhole) {
  const JobFile job = *ParseJobFile(kWhole, "job.yaml");
  EXPECT_EQ(job.name, "fashion-mnist");
  EXPECT_EQ(job.workers, "2");
  EXPECT_EQ(job.checkpoint_dir, "checkpoints");
  EXPECT_EQ(job.checkpoint_every, 200);
  EXPECT_EQ(job.checkpoint_keep, 3);
  EXPECT_EQ(job.max_restarts, 3);
  EXPECT_EQ(job.restart_window->restarts, 10);
  EXPECT_TRUE(job.preemptible);
  EXPECT_THAT(job.env, ElementsAre(std::make_pair("OMP_NUM_THREADS", "1")));
  EXPECT_EQ(job.train,
            R"({"model":{"kind":"mlp","hidden":[512,256]},)"
            R"("data":{"kind":"fashion_mnist","path":"/usr/share/datasets/fashion-mnist"},)"
            R"("optimizer":{"kind":"adamw","lr":0.001,"weight_decay":0.01,"clip":1.0,)"
            R"("schedule":{"warmup":100,"decay":"cosine"}},)"
            R"("batch":{"global":256,"micro":64},"steps":2000,"precision":"auto","seed":1})");
}

TEST(JobFile, HoldsACommandInsteadOfTraining) {
  const JobFile job = *ParseJobFile("command: [python3, -u, train.py, --lr, \"0.1\"]\n", "f");
  EXPECT_THAT(job.command, ElementsAre("python3", "-u", "train.py", "--lr", "0.1"));
  EXPECT_TRUE(job.train.empty());
}

TEST(JobFile, NamesLineAndNearestKeyOfAnUnknownOne) {
  EXPECT_EQ(FileRefusal("nmae: x\ncommand: [a]\n"),
            "job.yaml:1: unknown key \"nmae\"; did you mean name?");
  EXPECT_EQ(FileRefusal(With("hidden:", "hiden:")),
            "job.yaml:4: unknown key \"hiden\" in train.model; did you mean hidden?");
  EXPECT_EQ(
      FileRefusal(With("warmup:", "warm_up:")),
      "job.yaml:6: unknown key \"warm_up\" in train.optimizer.schedule; did you mean warmup?");
}

TEST(JobFile, NamesLineAndExpectationOfAWrongType) {
  EXPECT_EQ(
      FileRefusal(With("steps: 2000", "steps: many")),
      "job.yaml:8: train.steps: found \"many\", expected a whole number from 1 to 1000000000");
  EXPECT_THAT(FileRefusal(With("steps: 2000", "steps: \"2000\"")), HasSubstr("found the text"));
  EXPECT_THAT(FileRefusal(With("steps: 2000", "steps: [1]")), HasSubstr("job.yaml:8: train.steps"));
  EXPECT_THAT(FileRefusal(With("{global: 256, micro: 64}", "7")),
              HasSubstr("job.yaml:7: train.batch must be a mapping"));
  EXPECT_THAT(FileRefusal(With("[512, 256]", "[512, x]")), HasSubstr("train.model.hidden"));
  EXPECT_THAT(FileRefusal(With("kind: adamw", "kind: adam")), HasSubstr("did you mean adamw?"));
  EXPECT_THAT(FileRefusal("- a\n- b\n"), HasSubstr("the file must be a mapping"));
  EXPECT_THAT(FileRefusal("just text"), HasSubstr("the file must be a mapping"));
}

TEST(JobFile, RefusesValuesOutOfRange) {
  EXPECT_THAT(FileRefusal(With("steps: 2000", "steps: 0")), HasSubstr("train.steps"));
  EXPECT_THAT(FileRefusal(With("steps: 2000", "steps: -1")), HasSubstr("train.steps"));
  EXPECT_THAT(FileRefusal(With("lr: 1e-3", "lr: .nan")), HasSubstr("train.optimizer.lr"));
  EXPECT_THAT(FileRefusal(With("lr: 1e-3", "lr: -1")), HasSubstr("train.optimizer.lr"));
  EXPECT_THAT(FileRefusal(With("micro: 64", "micro: 512")), HasSubstr("is larger than global"));
  EXPECT_THAT(FileRefusal(With("every: 200 steps", "every: 5 minutes")),
              HasSubstr("checkpoint.every"));
  EXPECT_THAT(FileRefusal(With("10 in 1h", "often")), HasSubstr("restart.window"));
  EXPECT_THAT(FileRefusal(With("{workers: 2}", "{min: 3, max: 2}")), HasSubstr("less than min"));
  EXPECT_THAT(FileRefusal(With("{workers: 2}", "{max: 0}")), HasSubstr("nodes.max"));
}

TEST(JobFile, NamesItsNodes) {
  const absl::StatusOr<JobFile> file = ParseJobFile(
      With("{workers: 2}", "{hosts: \"n[1-4]\", min: 2, max: 4, spares: 1, workers: gpu}"), "j");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->hosts, "n[1-4]");
  EXPECT_EQ(file->nnodes, "2:4");
  EXPECT_EQ(file->spares, "1");
  EXPECT_EQ(file->workers, "gpu");
}

TEST(JobFile, WantsExactlyOneThingToRun) {
  EXPECT_THAT(FileRefusal("name: x\n"), HasSubstr("says what to run"));
  EXPECT_THAT(FileRefusal("command: []\n"), HasSubstr("must not be empty"));
  EXPECT_THAT(FileRefusal(absl::StrCat(kWhole, "command: [a]\n")), HasSubstr("both given"));
  EXPECT_THAT(FileRefusal(With("steps: 2000", "steps: 2000\n  epochs: 3")),
              HasSubstr("both given"));
  EXPECT_THAT(FileRefusal(With("  steps: 2000\n", "")),
              HasSubstr("train.steps or train.epochs is missing"));
}

TEST(Yaml, RefusesAHundredThousandLevels) {
  EXPECT_THAT(FileRefusal(std::string(100'000, '[')), HasSubstr("levels deep"));
  EXPECT_THAT(FileRefusal(std::string(100'000, '{')), HasSubstr("levels deep"));
  std::string block;
  for (int depth = 0; depth < 1000; ++depth) {
    absl::StrAppend(&block, std::string(static_cast<size_t>(depth), ' '), "a:\n");
  }
  EXPECT_THAT(FileRefusal(block), HasSubstr("levels deep"));
}

TEST(Yaml, RefusesAliasesThatExplode) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name <= 'z'; ++name) {
    const std::string last(1, static_cast<char>(name - 1));
    absl::StrAppend(&bomb, std::string(1, name), ": &", std::string(1, name), " [*", last, ",*",
                    last, ",*", last, ",*", last, "]\n");
  }
  EXPECT_THAT(FileRefusal(bomb), HasSubstr("job.yaml:1: anchors"));
  EXPECT_THAT(FileRefusal("a: *b\n"), HasSubstr("job.yaml:1:"));
}

TEST(Yaml, RefusesWhatMakesItAmbiguousOrLarge) {
  EXPECT_THAT(FileRefusal("name: a\nname: b\n"),
              HasSubstr("job.yaml:2: key \"name\" is given twice"));
  EXPECT_THAT(FileRefusal("name: a\n---\nname: b\n"), HasSubstr("more than one document"));
  EXPECT_THAT(FileRefusal("name: !!python/object a\n"), HasSubstr("tags"));
  EXPECT_THAT(FileRefusal("name: [a\nb: c\n"), HasSubstr("job.yaml:"));
  EXPECT_THAT(FileRefusal("? [a]\n: b\n"), HasSubstr("a key must be a text"));
  EXPECT_THAT(FileRefusal(std::string("na\0me: x\n", 9)), HasSubstr("zero byte"));
  EXPECT_THAT(FileRefusal(std::string(2 << 20, 'a')), HasSubstr("larger than"));
  std::string many;
  for (int key = 0; key < 100'000; ++key) {
    absl::StrAppend(&many, "k", key, ":\n");
  }
  EXPECT_THAT(FileRefusal(many), HasSubstr("keys in one mapping"));
}

TEST(JobFile, EveryRefusalSaysWhereWhatWasFoundAndWhatToDo) {
  EXPECT_EQ(FileRefusal(""),
            "job.yaml: holds nothing; it has to say what to run: command: [PROGRAM, …], "
            "or train: {…}");
  EXPECT_EQ(FileRefusal("# only a comment\n"), FileRefusal(""));
  EXPECT_EQ(FileRefusal(With("200 steps", "often")),
            "job.yaml:11: checkpoint.every: found \"often\", expected a number of steps, such as "
            "\"200 steps\"");
  EXPECT_EQ(FileRefusal(With("10 in 1h", "ten")),
            "job.yaml:12: restart.window: found \"ten\", expected a number of restarts and a time, "
            "such as \"10 in 1h\"");
  EXPECT_EQ(FileRefusal(With("kind: mlp, ", "")),
            "job.yaml:4: train.model.kind is missing; expected mlp or gpt");
  EXPECT_EQ(
      FileRefusal(With("global: 256, ", "")),
      "job.yaml:7: train.batch.global is missing; expected the number of samples in a step, of "
      "all workers together");
  EXPECT_EQ(FileRefusal(With("keep: 3", "xyzzy: 3")),
            "job.yaml:11: unknown key \"xyzzy\" in checkpoint; known are dir, every, keep");
  EXPECT_THAT(FileRefusal("command: [a\n"), HasSubstr("this is no valid YAML: "));
  EXPECT_EQ(FileRefusal(With("  steps: 2000\n", "  steps: 2000\n  epochs: 3\n")),
            "job.yaml:9: train.epochs and train.steps are both given; give one of them");
}

// Reading a pipe would wait for ever, reading a device would never end.
TEST(JobFile, OnlyAFileIsRead) {
  const Scratch scratch;
  ASSERT_EQ(mkfifo(scratch.File("job.yaml").c_str(), 0600), 0);
  for (const auto& [path, found] : {std::pair<std::string, std::string>(
                                        scratch.File("job.yaml"), "a pipe or device, not a file"),
                                    {scratch.path(), "a folder, not a file"},
                                    {"/dev/zero", "a pipe or device, not a file"},
                                    {scratch.File("none"), "No such file"}}) {
    const absl::Status status = ReadJobFile(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(found));
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

}  // namespace
}  // namespace trainctl

#include "launcher/wire.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

JobSpec Good() {
  JobSpec spec;
  spec.job_id = "ab-12";
  spec.command = {"/bin/echo", std::string("\xff\xfe not UTF-8"), ""};
  spec.cwd = "/tmp";
  spec.env = {"A=b", "EMPTY="};
  return spec;
}

TEST(Wire, ASpecificationComesBackByteForByte) {
  JobSpec spec = Good();
  spec.orphan_timeout = Duration(-1);
  spec.checkpoint_folder = "/ckpt\xff";
  const auto back = DecodeSpec(EncodeSpec(spec));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->command, spec.command);
  EXPECT_EQ(back->env, spec.env);
  EXPECT_EQ(back->checkpoint_folder, spec.checkpoint_folder);
  EXPECT_EQ(back->orphan_timeout, spec.orphan_timeout);
  EXPECT_EQ(back->lease, spec.lease);
}

TEST(Wire, RefusesASpecificationAndNamesTheField) {
  const struct {
    const char* field;
    void (*spoil)(JobSpec&);
  } cases[] = {
      {"command", [](JobSpec& s) { s.command.clear(); }},
      {"command", [](JobSpec& s) { s.command[1] = std::string("a\0b", 3); }},
      {"environment", [](JobSpec& s) { s.env = {"=x"}; }},
      {"environment", [](JobSpec& s) { s.env = {"NAME"}; }},
      {"cwd", [](JobSpec& s) { s.cwd = "relative"; }},
      {"cwd", [](JobSpec& s) { s.cwd.clear(); }},
      {"log_folder", [](JobSpec& s) { s.log_folder = "logs"; }},
      {"job_id", [](JobSpec& s) { s.job_id = "../up"; }},
      {"job_id", [](JobSpec& s) { s.job_id = std::string(41, 'a'); }},
      {"workers_per_node", [](JobSpec& s) { s.workers_per_node = -1; }},
      {"workers_per_node", [](JobSpec& s) { s.workers_per_node = 1'000'000; }},
      {"min_nodes", [](JobSpec& s) { s.min_nodes = -1; }},
      {"max_nodes", [](JobSpec& s) { s.max_nodes = 0; }},
      {"max_restarts", [](JobSpec& s) { s.max_restarts = -1; }},
      {"grace_ns", [](JobSpec& s) { s.grace = Duration(-1); }},
      {"lease_ns", [](JobSpec& s) { s.lease = Duration(0); }},
  };
  for (const auto& wrong : cases) {
    JobSpec spec = Good();
    wrong.spoil(spec);
    const absl::Status status = FromProto(ToProto(spec)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.field));
  }
}

TEST(Wire, RefusesASpecificationOfTooManyBytes) {
  JobSpec spec = Good();
  spec.command.push_back(std::string(9 << 20, 'x'));
  EXPECT_FALSE(FromProto(ToProto(spec)).ok());
}

TEST(Wire, ADamagedSpecificationIsDataLoss) {
  EXPECT_EQ(DecodeSpec("\x0a\xff").status().code(), absl::StatusCode::kDataLoss);
}

TEST(Wire, OnlyRankZeroReportsSteps) {
  v1::NodeMessage message;
  message.mutable_progress()->set_rank(0);
  message.mutable_progress()->set_step(7);
  const auto event = EventFrom("n1", Incarnation(1), message);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(std::get<StepReached>(*event).step, Step(7));
  message.mutable_progress()->set_rank(1);
  EXPECT_FALSE(EventFrom("n1", Incarnation(1), message).has_value());
}

TEST(Wire, ExitsKeepWhatTheNodeTold) {
  v1::NodeMessage message;
  v1::WorkerExit* exit = message.mutable_exited()->mutable_exit();
  exit->set_kind(v1::WorkerExit::SIGNALED);
  exit->set_code(11);
  exit->set_core(true);
  exit->set_exit_ns(5);
  exit->set_output_tail("\xff");
  message.mutable_exited()->set_rank(3);
  const auto event = EventFrom("n1", Incarnation(1), message);
  const auto& exited = std::get<WorkerExited>(*event);
  EXPECT_EQ(exited.rank, 3);
  EXPECT_EQ(exited.exit.kind, WorkerExit::Kind::kSignaled);
  EXPECT_TRUE(exited.exit.core);
  EXPECT_EQ(exited.exit.output_tail, "\xff");
}

}  // namespace
}  // namespace trainctl

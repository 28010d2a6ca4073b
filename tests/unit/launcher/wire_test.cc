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
  spec.max_nodes = 7;
  spec.spares = 2;
  spec.workers_per_node = kEverySlot;
  spec.nodes = {"n2", "n1"};
  spec.ranks_follow_nodes = true;
  const auto back = DecodeSpec(EncodeSpec(spec));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->command, spec.command);
  EXPECT_EQ(back->env, spec.env);
  EXPECT_EQ(back->checkpoint_folder, spec.checkpoint_folder);
  EXPECT_EQ(back->orphan_timeout, spec.orphan_timeout);
  EXPECT_EQ(back->lease, spec.lease);
  EXPECT_EQ(back->spares, 2);
  EXPECT_EQ(back->workers_per_node, kEverySlot);
  EXPECT_EQ(back->nodes, spec.nodes);
  EXPECT_TRUE(back->ranks_follow_nodes);
}

TEST(Wire, ANodeTellsWhereItIsReached) {
  v1::NodeState state;
  state.set_node("n1");
  state.set_address("10.0.0.1");
  EXPECT_EQ(FromProto(state).addresses.at(0).address, "10.0.0.1");
  EXPECT_EQ(FromProto(state).node_rank, -1);
  v1::NodeAddress* address = state.add_addresses();
  address->set_interface("ib0");
  address->set_address("10.1.0.1");
  state.set_topology("s0.s1.n1");
  state.set_machine("m");
  state.set_node_rank(0);
  const NodeJoined joined = FromProto(state);
  ASSERT_EQ(joined.addresses.size(), 1u);
  EXPECT_EQ(joined.addresses[0].interface, "ib0");
  EXPECT_EQ(joined.addresses[0].address, "10.1.0.1");
  EXPECT_EQ(joined.topology, "s0.s1.n1");
  EXPECT_EQ(joined.machine, "m");
  EXPECT_EQ(joined.node_rank, 0);
}

TEST(Wire, FrontEndsSeeWhereEveryNodeStands) {
  JobDescription job;
  for (const NodeStanding standing :
       {NodeStanding::kExpected, NodeStanding::kReady, NodeStanding::kSpare, NodeStanding::kMember,
        NodeStanding::kLate, NodeStanding::kLost, NodeStanding::kFenced, NodeStanding::kAway,
        NodeStanding::kDrained, NodeStanding::kUnfit}) {
    job.view.nodes.push_back({"n1", standing, "a", 8, 4, Instant{5}, "why"});
  }
  const JobDescription back = FromProto(ToProto(job));
  ASSERT_EQ(back.view.nodes.size(), job.view.nodes.size());
  for (size_t i = 0; i < job.view.nodes.size(); ++i) {
    EXPECT_EQ(back.view.nodes[i].standing, job.view.nodes[i].standing);
    EXPECT_EQ(back.view.nodes[i].reason, "why");
  }
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
      {"spares", [](JobSpec& s) { s.spares = -1; }},
      {"nodes",
       [](JobSpec& s) {
         s.nodes = {"n1", "n1"};
       }},
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

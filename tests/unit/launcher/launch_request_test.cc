#include "launcher/launch_request.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Surroundings Somewhere() {
  Surroundings s;
  s.cwd = "/work dir";
  s.env = {"PATH=/usr/bin:/bin", "HOME=/home/u"};
  s.state_folder = "/state";
  s.trainer = "/opt/libexec/train-worker";
  s.id_suffix = "abc234";
  s.cpus = 12;
  return s;
}

LaunchFlags Flags(std::vector<std::string> program) {
  LaunchFlags flags;
  flags.program = std::move(program);
  return flags;
}

JobFile TrainFile() {
  JobFile file;
  file.name = "mnist";
  file.train = R"({"steps": 5})";
  file.checkpoint_dir = "ckpt";
  file.checkpoint_every = 7;
  return file;
}

std::string Refusal(const LaunchFlags& flags) {
  const absl::StatusOr<LaunchRequest> request = MergeLaunch(flags, nullptr, Somewhere());
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << request.status();
  return std::string(request.status().message());
}

TEST(LaunchRequest, HasTorchrunsDefaults) {
  const JobSpec spec = MergeLaunch(Flags({"/bin/true", "-x"}), nullptr, Somewhere())->spec;
  EXPECT_THAT(spec.command, ElementsAre("/bin/true", "-x"));
  EXPECT_EQ(spec.workers_per_node, 1);
  EXPECT_EQ(spec.max_restarts, 0);
  EXPECT_EQ(spec.role, "default");
  EXPECT_EQ(spec.name, "true");
  EXPECT_EQ(spec.job_id, "true-abc234");
  EXPECT_EQ(spec.job_folder, "/state/jobs/true-abc234");
  EXPECT_EQ(spec.log_folder, "/state/jobs/true-abc234/logs");
  EXPECT_EQ(spec.orphan_timeout, seconds(60));
}

TEST(LaunchRequest, WritesTheTrainersConfiguration) {
  const JobFile file = TrainFile();
  const LaunchRequest request = *MergeLaunch(Flags({"job.yaml"}), &file, Somewhere());
  EXPECT_THAT(request.spec.command, ElementsAre("/opt/libexec/train-worker", "--config",
                                                "/state/jobs/mnist-abc234/train.json"));
  EXPECT_EQ(request.spec.max_restarts, 3);
  EXPECT_EQ(request.spec.checkpoint_folder, "/work dir/ckpt");
  EXPECT_EQ(request.train_config, R"({
  "steps": 5,
  "checkpoint": {
    "dir": "/work dir/ckpt",
    "keep": 3,
    "every_steps": 7
  }
}
)");
}

TEST(LaunchRequest, LetsFlagsOverrideTheFile) {
  JobFile file = TrainFile();
  file.workers = "8";
  file.max_restarts = 5;
  file.env = {{"HOME", "/elsewhere"}};
  LaunchFlags flags = Flags({"job.yaml"});
  flags.nproc_per_node = "2";
  flags.max_restarts = "1";
  flags.name = "mine";
  flags.checkpoint_dir = "/abs";
  flags.checkpoint_every = "9 steps";
  flags.plan = "plan.json";
  const LaunchRequest request = *MergeLaunch(flags, &file, Somewhere());
  EXPECT_EQ(request.spec.workers_per_node, 2);
  EXPECT_EQ(request.spec.max_restarts, 1);
  EXPECT_EQ(request.spec.name, "mine");
  EXPECT_THAT(request.spec.env, ElementsAre("PATH=/usr/bin:/bin", "HOME=/elsewhere"));
  EXPECT_EQ(request.train_config, R"({
  "steps": 5,
  "checkpoint": {
    "dir": "/abs",
    "keep": 3,
    "every_steps": 9
  },
  "plan_in": "/work dir/plan.json"
}
)");
}

TEST(LaunchRequest, CountsWorkers) {
  LaunchFlags flags = Flags({"/bin/true"});
  flags.nproc_per_node = "cpu";
  EXPECT_EQ(MergeLaunch(flags, nullptr, Somewhere())->spec.workers_per_node, 12);
  flags.nproc_per_node = "auto";
  EXPECT_EQ(MergeLaunch(flags, nullptr, Somewhere())->spec.workers_per_node, 12);
  Surroundings with_gpus = Somewhere();
  with_gpus.gpus = 4;
  with_gpus.topology = [] {
    Topology node;
    for (int i = 0; i < 4; ++i) {
      Gpu& gpu = node.gpus.emplace_back();
      gpu.index = i;
      gpu.uuid = "GPU-" + std::to_string(i);
    }
    return node;
  };
  EXPECT_EQ(MergeLaunch(flags, nullptr, with_gpus)->spec.workers_per_node, 4);
  flags.nproc_per_node = "gpu";
  EXPECT_EQ(MergeLaunch(flags, nullptr, with_gpus)->spec.workers_per_node, 4);
  EXPECT_EQ(MergeLaunch(flags, nullptr, Somewhere()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  for (const char* bad : {"0", "-1", "1000000", "4097", "two", ""}) {
    flags.nproc_per_node = bad;
    EXPECT_THAT(Refusal(flags), HasSubstr("--nproc-per-node")) << bad;
  }
}

TEST(LaunchRequest, TellsTheSpecOfOtherNodes) {
  LaunchFlags flags = Flags({"/bin/true"});
  flags.nnodes = "1:2";
  EXPECT_THAT(Refusal(flags), HasSubstr("--rdzv-endpoint"));
  flags.rdzv_endpoint = "h:29400";
  flags.node_rank = "0";
  flags.nproc_per_node = "cpu";
  const LaunchRequest request = MergeLaunch(flags, nullptr, Somewhere()).value();
  EXPECT_EQ(request.spec.min_nodes, 1);
  EXPECT_EQ(request.spec.max_nodes, 2);
  EXPECT_EQ(request.spec.listen, "h:29400");
  EXPECT_EQ(request.spec.claim, "/bin/true");
  EXPECT_EQ(request.spec.workers_per_node, kEverySlot);
  EXPECT_EQ(request.role.part.slots, 12);
  flags.node_rank = "2";
  EXPECT_THAT(Refusal(flags), HasSubstr("--node-rank"));
}

TEST(LaunchRequest, TakesNodesFromAListAFileOrTheJobFile) {
  Scratch scratch;
  Surroundings place = Somewhere();
  place.is_own_name = [](const std::string& name) { return name == "n2"; };
  LaunchFlags flags = Flags({"/bin/true"});
  flags.nodes = "n[1-3]:2";
  const LaunchRequest listed = MergeLaunch(flags, nullptr, place).value();
  EXPECT_THAT(listed.spec.nodes, ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(listed.spec.node_slots, ElementsAre(2, 2, 2));
  EXPECT_EQ(listed.spec.daemon_port, 7676);
  EXPECT_EQ(listed.spec.max_nodes, 3);
  flags.nproc_per_node = "2";
  EXPECT_THAT(std::string(MergeLaunch(flags, nullptr, place).status().message()),
              HasSubstr("--nodes gives slots"));
  flags.nproc_per_node.reset();
  scratch.Write("nodes", "n1\nn2  # here\nn3\n");
  flags.nodes = scratch.File("nodes");
  flags.nnodes = "2";
  flags.daemon_port = "7000";
  const LaunchRequest from_file = MergeLaunch(flags, nullptr, place).value();
  EXPECT_EQ(from_file.spec.max_nodes, 2);
  EXPECT_EQ(from_file.spec.spares, 1);
  EXPECT_EQ(from_file.spec.daemon_port, 7000);
  flags.nodes = "n[1-";
  EXPECT_THAT(std::string(MergeLaunch(flags, nullptr, place).status().message()),
              HasSubstr("--nodes: list of nodes"));
}

TEST(LaunchRequest, CertificatesComeInThrees) {
  LaunchFlags flags = Flags({"/bin/true"});
  flags.tls_cert = "c.pem";
  EXPECT_THAT(Refusal(flags), HasSubstr("go together"));
  flags.tls_key = "k.pem";
  flags.tls_ca = "a.pem";
  EXPECT_EQ(MergeLaunch(flags, nullptr, Somewhere())->tls.certificate, Somewhere().cwd + "/c.pem");
  flags.key = "x";
  EXPECT_THAT(Refusal(flags), HasSubstr("give one of them"));
}

TEST(LaunchRequest, AcceptsTorchrunsRendezvousFlags) {
  LaunchFlags flags = Flags({"/bin/true"});
  flags.standalone = true;
  flags.rdzv_backend = "c10d";
  flags.rdzv_endpoint = "localhost:0";
  flags.rdzv_id = "run/7";
  flags.rdzv_conf = "join_timeout=120,last_call_timeout=5";
  flags.monitor_interval = "0.1";
  flags.start_method = "spawn";
  flags.master_port = "29500";
  const JobSpec spec = MergeLaunch(flags, nullptr, Somewhere())->spec;
  EXPECT_EQ(spec.join_timeout, seconds(120));
  EXPECT_EQ(spec.name, "run/7");
  EXPECT_EQ(spec.job_id, "run-7-abc234");
  flags.start_method = "thread";
  EXPECT_THAT(Refusal(flags), HasSubstr("--start-method"));
}

TEST(LaunchRequest, RefusesFlagsThatTheProgramCannotFollow) {
  LaunchFlags flags = Flags({"/bin/true"});
  flags.checkpoint_every = "5";
  EXPECT_THAT(Refusal(flags), HasSubstr("built-in trainer"));
  JobFile file = TrainFile();
  EXPECT_THAT(MergeLaunch(Flags({"job.yaml", "--lr"}), &file, Somewhere()).status().message(),
              HasSubstr("takes no arguments"));
  file.checkpoint_dir.reset();
  EXPECT_THAT(MergeLaunch(Flags({"job.yaml"}), &file, Somewhere()).status().message(),
              HasSubstr("no folder is given"));
}

TEST(LaunchRequest, DetachedJobsHaveNoOrphanTimeOut) {
  LaunchFlags flags = Flags({"/bin/true"});
  flags.detach = true;
  EXPECT_LT(MergeLaunch(flags, nullptr, Somewhere())->spec.orphan_timeout, Duration(0));
}

class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/trainctl-program-XXXXXX";
    folder_ = mkdtemp(path);
    Write("train.py", 0644);
    Write("tool", 0755);
    Write("data.bin", 0644);
  }
  void TearDown() override {
    for (const char* name : {"train.py", "tool", "data.bin"})
      unlink((folder_ + "/" + name).c_str());
    rmdir(folder_.c_str());
  }
  void Write(const std::string& name, mode_t mode) {
    close(open((folder_ + "/" + name).c_str(), O_CREAT | O_WRONLY, mode));
  }
  absl::StatusOr<LaunchRequest> Merge(LaunchFlags flags) {
    Surroundings surroundings = Somewhere();
    surroundings.env[0] = "PATH=/usr/bin:/bin:" + folder_;
    return MergeLaunch(flags, nullptr, surroundings);
  }
  std::string folder_;
};

TEST_F(Program, RunsScriptsWithUnbufferedPython) {
  const std::string script = folder_ + "/train.py";
  EXPECT_THAT(Merge(Flags({script, "a"}))->spec.command, ElementsAre("python3", "-u", script, "a"));
  EXPECT_EQ(Merge(Flags({script}))->spec.name, "train");
}

TEST_F(Program, RunsModules) {
  LaunchFlags flags = Flags({"package.train", "--x"});
  flags.module = true;
  EXPECT_THAT(Merge(flags)->spec.command,
              ElementsAre("python3", "-u", "-m", "package.train", "--x"));
}

TEST_F(Program, HonoursPythonExec) {
  Surroundings surroundings = Somewhere();
  surroundings.env.push_back("PYTHON_EXEC=/usr/bin/env");
  EXPECT_EQ(MergeLaunch(Flags({folder_ + "/train.py"}), nullptr, surroundings)->spec.command[0],
            "/usr/bin/env");
  surroundings.env.back() = "PYTHON_EXEC=/no/such/python";
  EXPECT_THAT(MergeLaunch(Flags({folder_ + "/train.py"}), nullptr, surroundings).status().message(),
              HasSubstr("/no/such/python"));
}

TEST_F(Program, IsLookedUpInPath) {
  EXPECT_THAT(Merge(Flags({"tool"}))->spec.command, ElementsAre("tool"));
  EXPECT_THAT(Merge(Flags({"no-such-tool"})).status().message(), HasSubstr("not found in PATH"));
}

TEST_F(Program, IsRefusedIfItCannotRun) {
  LaunchFlags no_python = Flags({folder_ + "/train.py"});
  no_python.no_python = true;
  for (const LaunchFlags& flags : {Flags({folder_ + "/data.bin"}), Flags({folder_ + "/none.py"}),
                                   Flags({folder_}), Flags({""}), no_python}) {
    EXPECT_EQ(Merge(flags).status().code(), absl::StatusCode::kInvalidArgument) << flags.program[0];
  }
}

TEST(Console, ShowsAllUnlessRedirected) {
  ConsoleChoice choice;
  EXPECT_TRUE(choice.Shows(0, 1));
  choice.redirects = *StreamChoice::Parse("3");
  EXPECT_FALSE(choice.Shows(0, 2));
  choice.tee = *StreamChoice::Parse("0:2");
  EXPECT_TRUE(choice.Shows(0, 2));
  EXPECT_FALSE(choice.Shows(0, 1));
  choice = ConsoleChoice();
  choice.local_ranks = {1, 3};
  EXPECT_FALSE(choice.Shows(0, 1));
  EXPECT_TRUE(choice.Shows(3, 1));
}

TEST(IdStem, IsSafeAsAFileName) {
  EXPECT_EQ(IdStem("train"), "train");
  EXPECT_EQ(IdStem("../../etc/x y"), "etc-x-y");
  EXPECT_EQ(IdStem("--flag"), "flag");
  EXPECT_EQ(IdStem(""), "job");
  EXPECT_EQ(IdStem("\xe5\xae\x9f"), "job");
  EXPECT_EQ(IdStem(std::string(100, 'a')).size(), 33u);
}

}  // namespace
}  // namespace trainctl

#include "runtime/topology/gpu_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/topology/fitness.h"
#include "runtime/topology/topology_text.h"
#include "runtime/topology/xid.h"

namespace trainctl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Topology FromFixture(const std::string& name) {
  const std::string path =
      std::string(TRAINCTL_SOURCE_DIR) + "/tests/unit/topology/fixtures/" + name;
  const absl::StatusOr<std::string> text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  const absl::StatusOr<Topology> topology = ParseAnyTopology(text.value_or(""), path);
  EXPECT_TRUE(topology.ok()) << topology.status();
  return topology.value_or(Topology());
}

// Four GPUs over two NUMA nodes of four CPUs each: 0 and 2 on the first, 1 and 3 on the second.
Topology FourGpus() {
  Topology node;
  node.node = "n1";
  node.driver = "580.65.06";
  node.cuda = "13.0";
  node.numa = {{0, "0-3", 1000}, {1, "4-7", 1000}};
  for (int i = 0; i < 4; ++i) {
    Gpu gpu;
    gpu.index = i;
    gpu.name = "NVIDIA X";
    gpu.uuid = absl::StrCat("GPU-", i, i, i, i, i, i);
    gpu.numa = i % 2;
    node.gpus.push_back(gpu);
  }
  return node;
}

std::vector<std::string> Uuids(const GpuBinding& binding) {
  std::vector<std::string> uuids;
  for (const GpuWorker& worker : binding.workers.workers) uuids.push_back(worker.uuid);
  return uuids;
}

GpuBinding Bound(const Topology& topology, const GpuRequest& request) {
  const absl::StatusOr<GpuBinding> binding = BindGpus(topology, request);
  EXPECT_TRUE(binding.ok()) << binding.status();
  return binding.value_or(GpuBinding());
}

std::string Refusal(const Topology& topology, const GpuRequest& request,
                    absl::StatusCode code = absl::StatusCode::kFailedPrecondition) {
  const absl::Status status = BindGpus(topology, request).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(GpuBinding, GivesEachWorkerItsGpuAndTheCpusOfItsNumaNode) {
  const GpuBinding binding = Bound(FourGpus(), {});
  ASSERT_EQ(binding.workers.workers.size(), 4u);
  for (const GpuWorker& worker : binding.workers.workers) {
    const int numa = (worker.device.back() - '0') % 2;
    EXPECT_EQ(worker.numa, numa);
    EXPECT_THAT(worker.cpus, numa == 0 ? ElementsAre(0, 1, 2, 3) : ElementsAre(4, 5, 6, 7));
  }
  EXPECT_THAT(binding.plan.nodes[0].binding_reason, HasSubstr("memory is preferred from there"));
}

TEST(GpuBinding, KeepsTheOrderThatWasGiven) {
  GpuRequest request;
  request.gpus = "3,1";
  const GpuBinding listed = Bound(FourGpus(), request);
  EXPECT_THAT(Uuids(listed), ElementsAre("GPU-333333", "GPU-111111"));
  EXPECT_EQ(listed.plan.nodes[0].order_reason, "as --gpus gives them");
  EXPECT_EQ(listed.chosen.gpus.size(), 2u);
  request.gpus = "GPU-2222, 0";  // the beginning of a UUID
  EXPECT_THAT(Uuids(Bound(FourGpus(), request)), ElementsAre("GPU-222222", "GPU-000000"));
  request.gpus = "";
  request.visible = "2,0,-1,3";  // as CUDA reads it
  EXPECT_THAT(Uuids(Bound(FourGpus(), request)), ElementsAre("GPU-222222", "GPU-000000"));
  request.workers = 1;
  EXPECT_THAT(Uuids(Bound(FourGpus(), request)), ElementsAre("GPU-222222"));
}

TEST(GpuBinding, RefusesAListThatCannotBe) {
  const auto refuse = [](const char* list) {
    GpuRequest request;
    request.gpus = list;
    return Refusal(FourGpus(), request, absl::StatusCode::kInvalidArgument);
  };
  EXPECT_THAT(refuse("7"), HasSubstr("found \"7\", and this machine has GPU0, GPU1, GPU2, GPU3"));
  EXPECT_THAT(refuse("1,1"), HasSubstr("GPU1 twice"));
  EXPECT_THAT(refuse("1,"), HasSubstr("found \"\""));
  EXPECT_THAT(refuse("GPU-"), HasSubstr("found \"GPU-\""));
  EXPECT_THAT(refuse("x"), HasSubstr("nvidia-smi -L"));
  GpuRequest request;
  request.gpus = "0";
  request.visible = "1,2";
  EXPECT_THAT(Refusal(FourGpus(), request, absl::StatusCode::kInvalidArgument),
              HasSubstr("GPU0, which is not among CUDA_VISIBLE_DEVICES=1,2"));
  request = {};
  request.workers = 5;
  EXPECT_THAT(Refusal(FourGpus(), request, absl::StatusCode::kInvalidArgument),
              HasSubstr("5 workers, but only 4 GPUs"));
}

TEST(GpuBinding, StaysWithinTheCpusThatAreAllowed) {
  GpuRequest request;
  request.allowed_cpus = {2, 3, 4, 5};
  GpuBinding binding = Bound(FourGpus(), request);
  EXPECT_THAT(binding.workers.workers[0].cpus, ElementsAre(2, 3));
  EXPECT_THAT(binding.plan.nodes[0].binding_reason, HasSubstr("as far as they are allowed here"));
  request.allowed_cpus = {0, 1};  // as after numactl --cpunodebind=0
  binding = Bound(FourGpus(), request);
  EXPECT_THAT(binding.workers.workers[0].cpus, IsEmpty());
  EXPECT_THAT(binding.plan.nodes[0].binding_reason, HasSubstr("none is of NUMA node 1"));
  request = {};
  request.has_memory_policy = true;
  EXPECT_EQ(Bound(FourGpus(), request).workers.workers[0].numa, -1);
}

TEST(GpuBinding, DividesANumaNodeAmongItsWorkersIfAsked) {
  GpuRequest request;
  request.binding = *ParseCpuBinding("exclusive");
  request.gpus = "0,1,2";
  const std::vector<GpuWorker> workers = Bound(FourGpus(), request).workers.workers;
  EXPECT_THAT(workers[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(workers[1].cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(workers[2].cpus, ElementsAre(2, 3));
  request.binding = *ParseCpuBinding("none");
  EXPECT_THAT(Bound(FourGpus(), request).workers.workers[0].cpus, IsEmpty());
  EXPECT_FALSE(ParseCpuBinding("socket").ok());
}

TEST(GpuBinding, LeavesWorkersOfOneNumaNodeUnbound) {
  Topology node = FourGpus();
  node.numa = {{0, "0-7", 2000}};
  for (Gpu& gpu : node.gpus) gpu.numa = 0;
  const GpuBinding binding = Bound(node, {});
  EXPECT_THAT(binding.workers.workers[0].cpus, IsEmpty());
  EXPECT_THAT(binding.plan.nodes[0].binding_reason, HasSubstr("one NUMA node"));
}

TEST(GpuBinding, GivesSlicesOneByOne) {
  const Topology node = FromFixture("mig.yaml");
  const GpuBinding binding = Bound(node, {});
  EXPECT_TRUE(binding.workers.slices);
  GpuRequest request;
  request.gpus = binding.workers.workers.back().uuid;
  EXPECT_THAT(Uuids(Bound(node, request)), ElementsAre(request.gpus));
}

TEST(GpuBinding, SaysWhyNoGpuCanBeUsed) {
  Topology none;
  none.problems = {"no NVIDIA driver library: not found"};
  EXPECT_THAT(Refusal(none, {}), HasSubstr("no NVIDIA driver library"));
  EXPECT_THAT(Refusal(FromFixture("fabric_not_ready.yaml"), {}),
              HasSubstr("start nvidia-fabricmanager"));
  Topology lost = FourGpus();
  lost.gpus[1].problem = "it has fallen off the bus; reboot the node (dmesg names the Xid)";
  EXPECT_EQ(Bound(lost, {}).workers.workers.size(), 3u);
  GpuRequest request;
  request.gpus = "1";
  EXPECT_THAT(Refusal(lost, request), HasSubstr("GPU1 cannot be used: it has fallen off the bus"));
  request = {};
  request.visible = "";
  EXPECT_THAT(Refusal(FourGpus(), request), HasSubstr("leaves none"));
}

TEST(GpuBinding, NamesTheDriverThatAToolkitNeeds) {
  Topology node = FourGpus();
  EXPECT_TRUE(CheckDriver(node, "13.2").ok());  // of the same major version
  EXPECT_TRUE(CheckDriver(node, "").ok());
  node.driver = "535.54.03";
  node.cuda = "12.2";
  EXPECT_TRUE(CheckDriver(node, "12.6").ok());
  GpuRequest request;
  request.toolkit = "13.0.1";
  const std::string why = Refusal(node, request);
  EXPECT_THAT(why, HasSubstr("driver 535.54.03 serves CUDA 12.2 at most"));
  EXPECT_THAT(why, HasSubstr("CUDA 13.0.1, which needs driver 580.65.06 or later"));
  node.cuda = "13.0";  // by its library for forward compatibility
  EXPECT_TRUE(CheckDriver(node, "13.0.1").ok());
  node.cuda = "";
  EXPECT_FALSE(CheckDriver(node, "13.0.1").ok());
}

TEST(GpuBinding, NamesTheInterfacesThatThereAre) {
  const std::vector<std::string> here = {"eth0", "eth1", "lo"};
  for (const char* good : {"eth", "=eth1", "ib,eth0", "^docker,lo", "", "eth0:1"}) {
    EXPECT_TRUE(CheckSocketInterface(good, here).ok()) << good;
  }
  for (const char* bad : {"ib", "=eth", "^eth,lo"}) {
    EXPECT_THAT(std::string(CheckSocketInterface(bad, here).message()),
                HasSubstr("which has eth0, eth1, lo"))
        << bad;
  }
}

TEST(GpuBinding, ATopologyOfAnotherMachineIsRefused) {
  const Topology here = FourGpus();
  EXPECT_TRUE(CheckSameNode(here, here).ok());
  Topology other = here;
  other.node = "n2";
  EXPECT_THAT(std::string(CheckSameNode(other, here).message()), HasSubstr("of node n2"));
  other = here;
  other.gpus[2].uuid = "GPU-other";
  EXPECT_THAT(std::string(CheckSameNode(other, here).message()), HasSubstr("has GPU GPU-other"));
  other.gpus.erase(other.gpus.begin() + 2);
  EXPECT_THAT(std::string(CheckSameNode(other, here).message()), HasSubstr("lacks GPU GPU-222222"));
}

TEST(GpuBinding, TheUsersOwnSettingWins) {
  GpuRequest request;
  request.environment = {{"NCCL_NVLS_ENABLE", "0"}};
  const GpuBinding binding = Bound(FourGpus(), request);
  EXPECT_EQ(binding.workers.settings.count("NCCL_NVLS_ENABLE"), 0u);
  EXPECT_EQ(binding.plan.settings.back().who, NcclSetting::Who::kYours);
}

TEST(WorkerBinding, AllSeeTheSameDevicesInTheOrderOfTheirRanks) {
  WorkerBinding binding;
  binding.workers = {{"GPU3", "GPU-3", 0, {}}, {"GPU1", "GPU-1", 1, {}}};
  binding.settings = {{"NCCL_IB_HCA", "=mlx5_0:1"}, {"NCCL_X", "1"}};
  std::vector<std::string> common = {"CUDA_VISIBLE_DEVICES=0,1", "NCCL_X=mine"};
  BindCommon(binding, &common);
  EXPECT_THAT(common, ElementsAre("CUDA_VISIBLE_DEVICES=GPU-3,GPU-1", "NCCL_X=mine",
                                  "NCCL_IB_HCA==mlx5_0:1"));
  std::vector<std::string> own = {"LOCAL_RANK=1"};
  BindOwn(binding, 1, &own);
  EXPECT_THAT(own, ElementsAre("LOCAL_RANK=1"));
  own = {"LOCAL_RANK=0", "CUDA_VISIBLE_DEVICES=1"};  // as with --virtual-local-rank
  BindOwn(binding, 1, &own);
  EXPECT_THAT(own, ElementsAre("LOCAL_RANK=0", "CUDA_VISIBLE_DEVICES=GPU-1"));
  binding.slices = true;
  own = {"LOCAL_RANK=1"};
  BindOwn(binding, 1, &own);
  EXPECT_THAT(own, ElementsAre("LOCAL_RANK=0", "CUDA_VISIBLE_DEVICES=GPU-1"));
  common = {"A=1"};
  BindCommon(WorkerBinding(), &common);
  EXPECT_THAT(common, ElementsAre("A=1"));
}

TEST(Xid, TellsBrokenGpusFromWrongPrograms) {
  EXPECT_EQ(FindXid(79).meaning, XidMeaning::kUnfit);
  EXPECT_EQ(FindXid(48).meaning, XidMeaning::kUnfit);
  EXPECT_EQ(FindXid(94).meaning, XidMeaning::kRestart);
  EXPECT_EQ(FindXid(31).meaning, XidMeaning::kProgram);
  EXPECT_EQ(FindXid(63).meaning, XidMeaning::kNothing);
  EXPECT_EQ(FindXid(171).meaning, XidMeaning::kNothing);
  EXPECT_EQ(DescribeXid(FindXid(79)),
            "Xid 79 (GPU has fallen off the bus): reboot the node; if it comes again, have the "
            "hardware looked at");
}

}  // namespace
}  // namespace trainctl

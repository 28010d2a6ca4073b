#include "runtime/topology/gpu_catalogue.h"

#include <gtest/gtest.h>

#include <set>

namespace trainctl {
namespace {

Gpu Named(const std::string& name, const std::string& device_id = "") {
  Gpu gpu;
  gpu.name = name;
  gpu.device_id = device_id;
  return gpu;
}

TEST(GpuCatalogue, EveryEntryIsWholeHasASourceAndIsThereOnce) {
  std::set<std::string> names, ids;
  for (const GpuModel& model : GpuCatalogue()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    EXPECT_TRUE(ids.insert(model.device_id).second) << model.name;
    EXPECT_GT(model.source.size(), 10u) << model.name;
    // Each kind of number is at least as fast as the one before.
    EXPECT_GE(model.tf32.value_or(model.fp32), model.fp32) << model.name;
    EXPECT_GE(model.bf16.value_or(1e9), model.tf32.value_or(0)) << model.name;
    EXPECT_GE(model.fp8.value_or(1e9), model.bf16.value_or(0)) << model.name;
  }
  EXPECT_GE(names.size(), 20u);
}

TEST(GpuCatalogue, FindsByTheWholeNameOrByDeviceWhereThereIsNone) {
  ASSERT_NE(FindGpuModel(Named("NVIDIA H200")), nullptr);
  EXPECT_EQ(FindGpuModel(Named("NVIDIA H200"))->bandwidth, 4800);
  ASSERT_NE(FindGpuModel(Named("", "10de:20b5")), nullptr);
  EXPECT_EQ(ModelName(Named("", "10de:20b5")), "A100 80GB PCIe");
  EXPECT_EQ(FindGpuModel(Named("Tesla T4"))->bf16, std::nullopt);
}

TEST(GpuCatalogue, DoesNotGuessAnUnknownCard) {
  for (const char* name : {"NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 3090 Ti",
                           "NVIDIA H2000", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"}) {
    EXPECT_EQ(FindGpuModel(Named(name, "10de:2684")), nullptr) << name;
  }
  EXPECT_EQ(FindGpuModel(Gpu()), nullptr);
  EXPECT_EQ(ModelName(Named("", "10de:ffff")), "10de:ffff");
}

TEST(GpuCatalogue, AnEntryThatLacksAFigureIsRefused) {
  EXPECT_FALSE(ParseGpuCatalogue("gpus:\n  - name: X\n    pci: \"10de:0001\"\n").ok());
}

}  // namespace
}  // namespace trainctl

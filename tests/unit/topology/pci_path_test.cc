#include "runtime/topology/pci_path.h"

#include <gtest/gtest.h>

#include "runtime/topology/cpu_list.h"
#include "runtime/topology/pcie_speed.h"

namespace trainctl {
namespace {

PciPlace At(const std::string& below, int numa = 0) {
  return PlaceFromSysfs("/sys/devices/" + below, numa);
}

TEST(PciPath, OneSwitchIsPixAndTwoArePxb) {
  const PciPlace a = At("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:04.0/0000:3d:00.0");
  const PciPlace b = At("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:08.0/0000:3e:00.0");
  const PciPlace c = At(
      "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:0c.0/0000:3f:00.0/0000:40:00.0/0000:41:00.0");
  EXPECT_EQ(PathBetween(a, b), PciPath::kPix);
  EXPECT_EQ(PathBetween(a, c), PciPath::kPxb);
  EXPECT_EQ(PathBetween(c, b), PciPath::kPxb);
}

TEST(PciPath, FunctionsOfOneCardArePix) {
  EXPECT_EQ(PathBetween(At("pci0000:16/0000:16:01.0/0000:17:00.0"),
                        At("pci0000:16/0000:16:01.0/0000:17:00.1")),
            PciPath::kPix);
}

TEST(PciPath, PortsOfOneRootArePhbAndOtherRootsNodeOrSys) {
  const PciPlace a = At("pci0000:16/0000:16:01.0/0000:17:00.0");
  EXPECT_EQ(PathBetween(a, At("pci0000:16/0000:16:03.0/0000:18:00.0")), PciPath::kPhb);
  EXPECT_EQ(PathBetween(a, At("pci0000:30/0000:30:01.0/0000:31:00.0")), PciPath::kNode);
  EXPECT_EQ(PathBetween(a, At("pci0000:97/0000:97:01.0/0000:98:00.0", 1)), PciPath::kSys);
  EXPECT_EQ(PathBetween(At("pci0000:00/0000:00:06.0", -1), At("pci0000:00/0000:00:07.0", -1)),
            PciPath::kPhb);
}

TEST(PciPath, APlaceThatIsNotKnownGivesNoPath) {
  EXPECT_EQ(PathBetween(PciPlace(), At("pci0000:16/0000:16:01.0")), PciPath::kUnknown);
}

TEST(PciAddress, TakesEveryUsualForm) {
  EXPECT_EQ(NormalPciAddress("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(NormalPciAddress("3b:00.1"), "0000:3b:00.1");
  EXPECT_EQ(NormalPciAddress("ffff:ff:01.0"), "ffff:ff:01.0");
  for (const char* wrong :
       {"", "fffffff:ff:ff.0", "3b", "a:b:c:d.0", "0000:3b:00", "::.", "zz:00.0"}) {
    EXPECT_EQ(NormalPciAddress(wrong), std::nullopt) << wrong;
  }
}

TEST(CpuList, IsReadAndWrittenAsTheKernelDoes) {
  EXPECT_EQ(CpuListText(*ParseCpuList("8,0-3,2-4\n")), "0-4,8");
  EXPECT_EQ(CpuListText(*ParseCpuMask("00000001,80000003")), "0-1,31-32");
  EXPECT_EQ(CpuListText(*ParseCpuList("")), "");
  for (const char* wrong : {"a", "3-1", "0-99999999", "-1", "1-"}) {
    EXPECT_EQ(ParseCpuList(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(ParseCpuMask("xyz"), std::nullopt);
}

TEST(PcieSpeed, IsReadFromSysfsAndNccl) {
  EXPECT_EQ(PcieGeneration("32.0 GT/s PCIe"), 5);
  EXPECT_EQ(PcieGeneration("8 GT/s"), 3);
  EXPECT_EQ(PcieGeneration(""), 0);
  EXPECT_EQ(PcieGeneration("Unknown"), 0);
  EXPECT_DOUBLE_EQ(PcieGigabytesPerSecond(4, 16), 24);
  EXPECT_DOUBLE_EQ(PcieGigabytesPerSecond(0, 16), 0);
}

}  // namespace
}  // namespace trainctl

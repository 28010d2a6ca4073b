#include "runtime/topology/nvml_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

namespace trainctl {
namespace {

using ::testing::HasSubstr;

// A driver of two GPUs: what each test wants of it is in here, since its functions take no state.
struct FakeDriver {
  NvmlReturn init = kNvmlSuccess;
  NvmlReturn second_opens = kNvmlSuccess;
  int links = 0;
  int link_type = -1;        // of the peer; -1: the driver does not tell
  bool hide_switch = false;  // as a virtual machine does
  bool link_by_field = false;
  int p2p_status = 0;
  unsigned mig = 0;
  unsigned char fabric = 0;
  unsigned recovery = 0;
};
FakeDriver fake;

NvmlDevice Handle(uintptr_t number) { return reinterpret_cast<NvmlDevice>(number + 1); }
uintptr_t NumberOf(NvmlDevice device) { return reinterpret_cast<uintptr_t>(device) - 1; }
bool IsSlice(NvmlDevice device) { return NumberOf(device) >= 10; }

NvmlApi Api() {
  NvmlApi api{};
  api.init = [] { return fake.init; };
  api.shutdown = [] { return kNvmlSuccess; };
  api.device_count = [](unsigned* count) {
    *count = 2;
    return kNvmlSuccess;
  };
  api.device = [](unsigned index, NvmlDevice* device) {
    *device = Handle(index);
    return index == 1 ? fake.second_opens : kNvmlSuccess;
  };
  api.name = [](NvmlDevice device, char* text, unsigned size) {
    snprintf(text, size, IsSlice(device) ? "NVIDIA X MIG 1g.10gb" : "NVIDIA X");
    return kNvmlSuccess;
  };
  api.uuid = [](NvmlDevice device, char* text, unsigned size) {
    snprintf(text, size, "%s-%u", IsSlice(device) ? "MIG" : "GPU",
             static_cast<unsigned>(NumberOf(device)));
    return kNvmlSuccess;
  };
  api.pci = [](NvmlDevice device, NvmlPciInfo* info) {
    snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%02X:00.0",
             static_cast<unsigned>(0x3b + NumberOf(device)));
    return kNvmlSuccess;
  };
  api.memory = [](NvmlDevice, NvmlMemory* memory) {
    memory->total = 80ull << 30;
    return kNvmlSuccess;
  };
  return api;
}

NvmlApi NewerApi() {
  NvmlApi api = Api();
  api.error_text = [](NvmlReturn) { return "some error"; };
  api.driver_version = [](char* text, unsigned size) {
    snprintf(text, size, "570.86.15");
    return kNvmlSuccess;
  };
  api.cuda_version = [](int* version) {
    *version = 12080;
    return kNvmlSuccess;
  };
  api.capability = [](NvmlDevice, int* major, int* minor) {
    *major = 9;
    *minor = 0;
    return kNvmlSuccess;
  };
  api.link_state = [](NvmlDevice, unsigned link, int* active) {
    *active = static_cast<int>(link) < fake.links ? 1 : 0;
    return fake.link_by_field ? kNvmlNotSupported : kNvmlSuccess;
  };
  api.field_values = [](NvmlDevice device, int, NvmlFieldValue* value) {
    if (value->field == kNvmlFieldRecoveryAction) {
      value->value.as_unsigned = NumberOf(device) == 0 ? fake.recovery : 0;
      value->status = kNvmlSuccess;
      return kNvmlSuccess;
    }
    value->value.as_unsigned = static_cast<int>(value->scope) < fake.links ? 1 : 0;
    value->status = kNvmlSuccess;
    return kNvmlSuccess;
  };
  api.link_peer = [](NvmlDevice device, unsigned, NvmlPciInfo* info) {
    if (fake.hide_switch) {
      return kNvmlNotSupported;
    }
    snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%02X:00.0",
             fake.link_type == 2 ? 0xc1 : static_cast<unsigned>(0x3b + 1 - NumberOf(device)));
    return kNvmlSuccess;
  };
  api.link_peer_type = [](NvmlDevice, unsigned, int* type) {
    *type = fake.link_type;
    return fake.link_type < 0 ? kNvmlNotSupported : kNvmlSuccess;
  };
  api.ancestor = [](NvmlDevice, NvmlDevice, int* level) {
    *level = 50;
    return kNvmlSuccess;
  };
  api.p2p = [](NvmlDevice, NvmlDevice, int capability, int* status) {
    *status = capability == 1 ? fake.p2p_status : 0;
    return kNvmlSuccess;
  };
  api.mig_mode = [](NvmlDevice device, unsigned* now, unsigned* pending) {
    *now = *pending = NumberOf(device) == 0 ? fake.mig : 0;
    return kNvmlSuccess;
  };
  api.mig_most = [](NvmlDevice, unsigned* count) {
    *count = 7;
    return kNvmlSuccess;
  };
  api.mig_device = [](NvmlDevice, unsigned index, NvmlDevice* device) {
    *device = Handle(10 + index);
    return index < 2 ? kNvmlSuccess : kNvmlNotSupported;
  };
  api.fabric = [](NvmlDevice, NvmlFabric* info) {
    EXPECT_EQ(info->version, 36u | 2u << 24);
    info->state = fake.fabric;
    return kNvmlSuccess;
  };
  return api;
}

NvmlSeen Probed(const FakeDriver& driver, const NvmlApi& api) {
  fake = driver;
  const absl::StatusOr<NvmlSeen> seen = ProbeNvml(api);
  EXPECT_TRUE(seen.ok()) << seen.status();
  return seen.ok() ? *seen : NvmlSeen();
}

TEST(NvmlProbe, ReadsWhatTheDriverTells) {
  FakeDriver driver;
  driver.links = 4;
  driver.p2p_status = 1;
  driver.fabric = 2;
  const NvmlSeen seen = Probed(driver, NewerApi());
  EXPECT_EQ(seen.driver, "570.86.15");
  EXPECT_EQ(seen.cuda, "12.8");
  ASSERT_EQ(seen.gpus.size(), 2u);
  EXPECT_EQ(seen.gpus[1].pci, "0000:3c:00.0");
  EXPECT_EQ(seen.gpus[1].uuid, "GPU-1");
  EXPECT_EQ(seen.gpus[1].sm, 90);
  EXPECT_EQ(seen.gpus[1].memory_mib, 81920);
  EXPECT_EQ(seen.gpus[1].fabric, FabricState::kInProgress);
  ASSERT_EQ(seen.links.size(), 1u);
  EXPECT_EQ(seen.links[0].nvlinks, 4);
  EXPECT_EQ(seen.links[0].path, PciPath::kSys);
  EXPECT_EQ(seen.links[0].p2p, PeerAccess::kChipset);  // both directions must be there
}

TEST(NvmlProbe, AnOldLibraryTellsLessAndIsNoError) {
  const NvmlSeen seen = Probed(FakeDriver(), Api());
  ASSERT_EQ(seen.gpus.size(), 2u);
  EXPECT_EQ(seen.gpus[0].sm, 0);
  EXPECT_EQ(seen.links[0].path, PciPath::kUnknown);
  EXPECT_EQ(seen.links[0].p2p, PeerAccess::kUnknown);
}

TEST(NvmlProbe, CountsLinksToSwitchesAlsoWhereTheyAreHidden) {
  FakeDriver driver;
  driver.links = 18;
  driver.link_type = 2;
  EXPECT_EQ(Probed(driver, NewerApi()).gpus[0].switch_nvlinks, 18);
  driver.hide_switch = true;
  EXPECT_EQ(Probed(driver, NewerApi()).gpus[0].switch_nvlinks, 18);
  driver.link_by_field = true;
  EXPECT_EQ(Probed(driver, NewerApi()).gpus[0].switch_nvlinks, 18);
  EXPECT_EQ(Probed(driver, NewerApi()).links[0].nvlinks, 0);
}

TEST(NvmlProbe, ReadsSlices) {
  FakeDriver driver;
  driver.mig = 1;
  const NvmlSeen seen = Probed(driver, NewerApi());
  ASSERT_EQ(seen.gpus[0].mig.size(), 2u);
  EXPECT_EQ(seen.gpus[0].mig[1].profile, "1g.10gb");
  EXPECT_EQ(seen.gpus[0].mig[1].uuid, "MIG-11");
  EXPECT_FALSE(seen.gpus[1].mig_enabled);
}

TEST(NvmlProbe, ALostGpuStaysInTheListWithItsProblem) {
  FakeDriver driver;
  driver.second_opens = kNvmlGpuIsLost;
  const NvmlSeen seen = Probed(driver, NewerApi());
  ASSERT_EQ(seen.gpus.size(), 2u);
  EXPECT_THAT(seen.gpus[1].problem, HasSubstr("fallen off the bus"));
  EXPECT_EQ(seen.links.size(), 1u);
  driver.second_opens = 999;
  EXPECT_THAT(Probed(driver, NewerApi()).gpus[1].problem, HasSubstr("some error"));
}

TEST(NvmlProbe, AGpuThatNeedsAResetSaysSo) {
  FakeDriver driver;
  driver.recovery = 1;
  const NvmlSeen seen = Probed(driver, NewerApi());
  EXPECT_THAT(seen.gpus[0].problem, HasSubstr("nvidia-smi --gpu-reset"));
  EXPECT_EQ(seen.gpus[1].problem, "");
}

TEST(NvmlProbe, SaysWhyThereIsNoDriver) {
  fake = FakeDriver();
  fake.init = kNvmlDriverNotLoaded;
  EXPECT_THAT(std::string(ProbeNvml(Api()).status().message()), HasSubstr("not loaded"));
  fake.init = kNvmlVersionMismatch;
  EXPECT_THAT(std::string(ProbeNvml(Api()).status().message()), HasSubstr("different versions"));
  fake.init = 999;
  EXPECT_THAT(std::string(ProbeNvml(Api()).status().message()), HasSubstr("NVML error 999"));
}

TEST(NvmlApi, ALibraryThatIsMissingOrAnotherIsNotLoaded) {
  EXPECT_THAT(std::string(LoadNvml("libno-such-library.so.1").status().message()),
              HasSubstr("no NVIDIA driver library"));
  EXPECT_THAT(std::string(LoadNvml("libc.so.6").status().message()),
              HasSubstr("libc.so.6 has no nvmlInit_v2"));
}

}  // namespace
}  // namespace trainctl

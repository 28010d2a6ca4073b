#include "runtime/trainer/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using testing::HasSubstr;

const FoundGpu kNone = {.text = "no NVIDIA driver"};
const FoundGpu kHopper = {0, 90, "NVIDIA H200"};
const FoundGpu kTuring = {0, 75, "Tesla T4"};
const FoundGpu kPascal = {0, 61, "Quadro P4000"};

TEST(DeviceChoice, IsTheCpuWithoutAWordWhereThereIsNoGpu) {
  const auto choice = ChooseDevice(Device::kAuto, Precision::kAuto, kNone, "");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_FALSE(choice->gpu);
  EXPECT_EQ(choice->precision, Precision::kFp32);
  EXPECT_EQ(choice->reason, "");
}

TEST(DeviceChoice, TakesThePrecisionThatTheGpuIsBestAt) {
  const struct {
    const FoundGpu& gpu;
    Precision precision;
  } cases[] = {
      {kHopper, Precision::kBf16}, {kTuring, Precision::kFp16}, {kPascal, Precision::kFp32}};
  for (const auto& c : cases) {
    const auto choice = ChooseDevice(Device::kAuto, Precision::kAuto, c.gpu, "");
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_TRUE(choice->gpu);
    EXPECT_EQ(choice->precision, c.precision);
    EXPECT_THAT(choice->reason, HasSubstr(c.gpu.text));
  }
}

TEST(DeviceChoice, SaysWhyAGpuIsLeftIdle) {
  const auto choice = ChooseDevice(Device::kAuto, Precision::kAuto, kHopper, "mlp is for CPUs");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_FALSE(choice->gpu);
  EXPECT_THAT(choice->reason, HasSubstr("mlp is for CPUs"));
}

TEST(DeviceChoice, RefusesAGpuThatIsAskedForAndNotThere) {
  const auto choice = ChooseDevice(Device::kCuda, Precision::kAuto, kNone, "");
  EXPECT_EQ(choice.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(choice.status().message()), HasSubstr("no NVIDIA driver"));
}

TEST(DeviceChoice, RefusesAPrecisionThatTheDeviceCannotDo) {
  const auto old = ChooseDevice(Device::kAuto, Precision::kBf16, kTuring, "");
  EXPECT_EQ(old.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(old.status().message()), HasSubstr("compute capability 7.5"));
  const auto cpu = ChooseDevice(Device::kCpu, Precision::kBf16, kHopper, "");
  EXPECT_EQ(cpu.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(cpu.status().message()), HasSubstr("train.device is cpu"));
}

TEST(DeviceChoice, DoesWhatItIsTold) {
  const auto choice = ChooseDevice(Device::kCuda, Precision::kTf32, kHopper, "");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->precision, Precision::kTf32);
}

}  // namespace
}  // namespace trainctl

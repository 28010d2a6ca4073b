#include "runtime/device/cuda_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/device.h"
#include "runtime/device/memory.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

TEST(CheckDriver, NamesBothVersionsOfADriverThatIsTooOld) {
  const absl::Status status = CheckDriver(12080, 13000);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("serves CUDA 12.8"));
  EXPECT_THAT(status.message(), HasSubstr("built with CUDA 13.0"));
}

TEST(CheckDriver, TakesAnOlderOneOfTheSameMajorVersionAndANewerOne) {
  EXPECT_TRUE(CheckDriver(12000, 12080).ok());
  EXPECT_TRUE(CheckDriver(13020, 12080).ok());
}

TEST(CheckDriver, KnowsThatThereIsNone) {
  EXPECT_EQ(CheckDriver(0, 13000).code(), absl::StatusCode::kUnavailable);
}

TEST(CudaStatus, SaysWhatWasBeingDoneAndWhatToDo) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "copy wte").ok());
  const absl::Status lost = CudaStatus(cudaErrorIllegalAddress, "copy wte to GPU0");
  EXPECT_EQ(lost.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(lost.message(), HasSubstr("copy wte to GPU0: "));
  EXPECT_THAT(lost.message(), HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_THAT(lost.message(), HasSubstr("only a new one"));
  EXPECT_EQ(CudaStatus(cudaErrorSystemNotReady, "x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CudaStatus(cudaErrorInvalidDevice, "x").code(), absl::StatusCode::kInvalidArgument);
}

TEST(Device, SaysThatThereIsNoGpuWhereThereIsNone) {
  const absl::StatusOr<int> count = CountDevices();
  if (count.ok()) GTEST_SKIP() << "skipped, because this machine has a GPU";
  EXPECT_EQ(count.status().code(), absl::StatusCode::kUnavailable) << count.status();
  EXPECT_THAT(count.status().message(), HasSubstr("count the GPUs: no NVIDIA driver"));
  EXPECT_EQ(DeviceMemory::Allocate("wte", 4096).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(DeviceMemory::Allocate("nothing", 0).ok());
}

}  // namespace
}  // namespace trainctl

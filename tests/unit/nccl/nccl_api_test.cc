#include "runtime/nccl/nccl_api.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>

#include "tests/unit/nccl/fake_nccl.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

TEST(NcclVersion, IsReadInBothNumberings) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(21403), "2.14.3");
  EXPECT_EQ(NcclVersionText(2804), "2.8.4");
}

TEST(NcclVersion, ThatCannotBePolledIsRefusedWithTheNumbers) {
  EXPECT_TRUE(CheckNcclVersion(21403).ok());
  for (const int old : {2804, 21306, 21402}) {
    const absl::Status status = CheckNcclVersion(old);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(NcclVersionText(old)));
    EXPECT_THAT(status.message(), HasSubstr("2.14.3"));
  }
}

TEST(NcclVersion, SaysWhetherAProcessOutlivesAnAbort) {
  for (const int version : {21403, 22707, 22802, 22809, 22903}) {
    EXPECT_TRUE(NcclRecoversInProcess(version)) << version;
  }
  for (const int version : {22803, 22805, 22808}) {
    EXPECT_FALSE(NcclRecoversInProcess(version)) << version;
  }
}

TEST(NcclConfig, HasTheFieldsThatTheVersionKnows) {
  const NcclConfig old = MakeNcclConfig(21403, false, "job");
  EXPECT_EQ(old.size, 24u);
  EXPECT_EQ(old.blocking, 0);
  EXPECT_EQ(old.name, nullptr);
  EXPECT_EQ(old.cga_cluster_size, INT_MIN);
  const NcclConfig recent = MakeNcclConfig(22703, true, "job");
  EXPECT_EQ(recent.size, 56u);
  EXPECT_EQ(recent.blocking, 1);
  EXPECT_STREQ(recent.name, "job");
  EXPECT_EQ(recent.traffic_class, INT_MIN);
  EXPECT_EQ(recent.net_name, nullptr);
}

TEST(LoadNccl, SaysThatItIsNotThereAndWhatToDo) {
  const absl::Status status = LoadNccl("/nowhere/libnccl.so.2").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/libnccl.so.2"));
  EXPECT_THAT(status.message(), HasSubstr("LD_LIBRARY_PATH"));
}

TEST(LoadNccl, RefusesWhatIsNoNccl) {
  EXPECT_THAT(LoadNccl("libm.so.6").status().message(), HasSubstr("it is no NCCL"));
}

TEST(LoadNccl, RefusesAnOldLibraryAndNamesItsFile) {
  void* library = ::dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  auto* fake = reinterpret_cast<FakeNccl* (*)()>(::dlsym(library, "FakeNcclState"))();
  fake->version = 21003;
  const absl::Status status = LoadNccl(FAKE_NCCL).status();
  EXPECT_THAT(status.message(), HasSubstr("fake_nccl"));
  EXPECT_THAT(status.message(), HasSubstr("2.10.3 is too old"));
  fake->version = 21805;
  absl::StatusOr<const NcclApi*> api = LoadNccl(FAKE_NCCL);
  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_EQ((*api)->version, 21805);
}

}  // namespace
}  // namespace trainctl

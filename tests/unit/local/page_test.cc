#include "runtime/local/page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "runtime/base/fd.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

struct Created {
  Created() {
    int raw = -1;
    auto created = MappedPage::Create(&raw);
    EXPECT_TRUE(created.ok()) << created.status();
    fd = Fd(raw);
    page.emplace(*std::move(created));
  }
  std::string Path() const { return "/proc/self/fd/" + std::to_string(fd.get()); }
  Fd fd;
  std::optional<MappedPage> page;
};

TEST(Page, WhatOneSideWritesTheOtherReads) {
  Created created;
  auto other = MappedPage::Open(created.Path());
  ASSERT_TRUE(other.ok()) << other.status();
  (*other)->step.store(42);
  (*other)->loss.store(0.5);
  (*other)->ring[255].sequence = 7;
  EXPECT_EQ((*created.page)->step.load(), 42u);
  EXPECT_EQ((*created.page)->loss.load(), 0.5);
  EXPECT_EQ((*created.page)->ring[255].sequence, 7u);
}

TEST(Page, SurvivesTheSideThatWroteIt) {
  Created created;
  { (*MappedPage::Open(created.Path()))->step.store(3); }
  EXPECT_EQ((*created.page)->step.load(), 3u);
}

TEST(Page, ResetClearsAllButItsIdentity) {
  Created created;
  WorkerPage& page = *created.page->get();
  page.step.store(9);
  page.stop_requested.store(1);
  page.ring[17].bytes = 5;
  created.page->Reset(4);
  EXPECT_EQ(page.step.load(), 0u);
  EXPECT_EQ(page.stop_requested.load(), 0u);
  EXPECT_EQ(page.ring[17].bytes, 0u);
  EXPECT_EQ(page.epoch.load(), 4);
  EXPECT_TRUE(MappedPage::FromFd(created.fd.get()).ok());
}

TEST(Page, RefusesWhatIsNoPageAndSaysWhy) {
  Created created;
  created.page->get()->version = kPageVersion + 1;
  EXPECT_THAT(std::string(MappedPage::FromFd(created.fd.get()).status().message()),
              HasSubstr("version 2"));
  created.page->get()->magic = 0;
  EXPECT_EQ(MappedPage::FromFd(created.fd.get()).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(::ftruncate(created.fd.get(), 100), 0);
  EXPECT_THAT(std::string(MappedPage::FromFd(created.fd.get()).status().message()),
              HasSubstr("has 100 bytes"));
  EXPECT_EQ(MappedPage::Open("/no/such/page").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(MappedPage::FromFd(-1).ok());
}

TEST(Page, MovesItsMapping) {
  Created created;
  MappedPage moved(*std::move(created.page));
  moved->step.store(1);
  Created other;
  moved = *std::move(other.page);
  EXPECT_EQ(moved->step.load(), 0u);
}

TEST(WorkerPhaseName, KnowsEveryPhase) {
  for (uint32_t phase = 0; phase <= static_cast<uint32_t>(WorkerPhase::kIdle); ++phase) {
    EXPECT_STRNE(WorkerPhaseName(static_cast<WorkerPhase>(phase)), "unknown");
  }
  EXPECT_STREQ(WorkerPhaseName(static_cast<WorkerPhase>(99)), "unknown");
}

}  // namespace
}  // namespace trainctl

#include "launcher/journal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/journal_format.h"
#include "runtime/base/file.h"

namespace trainctl {
namespace {

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    // In memory where that is possible: the tests sync hundreds of times.
    const bool memory = ::access("/dev/shm", W_OK) == 0;
    std::string pattern =
        (memory ? std::string("/dev/shm") : testing::TempDir()) + "/journal_test.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/journal";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Contents() { return *ReadFile(path_); }
  void Overwrite(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  // Three appends; returns the file's size after each, the header first.
  std::vector<size_t> Fill() {
    std::vector<size_t> sizes;
    auto journal = Journal::Open(path_);
    EXPECT_TRUE(journal.ok()) << journal.status();
    sizes.push_back(Contents().size());
    const std::vector<std::vector<JournalRecord>> batches = {
        {TermStarted{Term(1)}, EpochFormed{Epoch(0), {{"n1", "m", "a", 0, 1}}, "a", 1, "why", 2}},
        {CommitGranted{Epoch(0), Step(10)}},
        {Stopping{"Ctrl-C", false}}};
    for (const auto& batch : batches) {
      EXPECT_TRUE(journal->Append(batch).ok());
      sizes.push_back(Contents().size());
    }
    return sizes;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(JournalTest, RemembersWhatWasAppended) {
  Fill();
  auto journal = Journal::Open(path_);
  ASSERT_TRUE(journal.ok()) << journal.status();
  ASSERT_EQ(journal->records().size(), 4u);
  EXPECT_EQ(std::get<EpochFormed>(journal->records()[1]).nodes.at(0).node, "n1");
  EXPECT_EQ(std::get<Stopping>(journal->records()[3]).reason, "Ctrl-C");
  EXPECT_EQ(journal->cut(), 0u);
}

TEST_F(JournalTest, EveryLifeHasAHigherTerm) {
  for (int64_t term = 1; term <= 3; ++term) {
    auto journal = Journal::Open(path_);
    ASSERT_TRUE(journal.ok());
    EXPECT_EQ(journal->next_term(), Term(term));
    ASSERT_TRUE(journal->Append({TermStarted{Term(term)}}).ok());
  }
}

TEST_F(JournalTest, OneCoordinatorAtATime) {
  auto first = Journal::Open(path_);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Journal::Open(path_).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(ReadJournal(path_).ok()) << "those who only look need no lock";
  first = absl::CancelledError();
  EXPECT_TRUE(Journal::Open(path_).ok());
}

TEST_F(JournalTest, CutAtAnyByteItHoldsTheRecordsThatWereWhole) {
  Fill();
  const std::string whole = Contents();
  size_t records = 0;
  for (size_t n = 0; n <= whole.size(); ++n) {
    Overwrite(whole.substr(0, n));
    const auto seen = ReadJournal(path_);
    ASSERT_TRUE(seen.ok()) << "at " << n << ": " << seen.status();
    auto journal = Journal::Open(path_);
    ASSERT_TRUE(journal.ok()) << "at " << n << ": " << journal.status();
    EXPECT_EQ(seen->size(), journal->records().size());
    EXPECT_GE(journal->records().size(), records);
    records = journal->records().size();
    const Term term = journal->next_term();
    ASSERT_TRUE(journal->Append({TermStarted{term}}).ok());
    const auto again = ReadJournal(path_);
    ASSERT_TRUE(again.ok()) << "at " << n << ": " << again.status();
    EXPECT_EQ(again->size(), records + 1);
  }
  EXPECT_EQ(records, 4u);
}

TEST_F(JournalTest, AWrongBitBeforeTheLastRecordIsDataLoss) {
  const std::vector<size_t> sizes = Fill();
  const std::string whole = Contents();
  const size_t last = sizes[sizes.size() - 2];
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string wrong = whole;
      wrong[i] = static_cast<char>(wrong[i] ^ (1 << bit));
      Overwrite(wrong);
      const auto journal = Journal::Open(path_);
      if (i < last) {
        EXPECT_FALSE(journal.ok()) << "byte " << i;
      } else {  // the same as a write that did not finish
        ASSERT_TRUE(journal.ok()) << "byte " << i << ": " << journal.status();
        EXPECT_EQ(journal->records().size(), 3u);
      }
    }
  }
}

TEST_F(JournalTest, NamesTheOffsetOfTheDamage) {
  const std::vector<size_t> sizes = Fill();
  std::string wrong = Contents();
  wrong[sizes[1] + 13] ^= 1;
  Overwrite(wrong);
  const absl::Status status = Journal::Open(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("damaged at byte ", sizes[1])))
      << status;
  EXPECT_EQ(Contents(), wrong) << "a damaged journal is left as it is";
}

TEST_F(JournalTest, ZerosAfterTheEndAreAnUnfinishedWrite) {
  Fill();
  Overwrite(Contents() + std::string(4096, '\0'));
  auto journal = Journal::Open(path_);
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_EQ(journal->records().size(), 4u);
  EXPECT_EQ(journal->cut(), 4096u);
}

TEST_F(JournalTest, ABeginningOfTheHeaderAndZerosAreAnUnfinishedWrite) {
  const std::string header = JournalHeader();
  for (size_t written = 0; written < header.size(); ++written) {
    for (const size_t zeros : {0, 1, 16, 4096}) {
      Overwrite(header.substr(0, written) + std::string(zeros, '\0'));
      auto journal = Journal::Open(path_);
      ASSERT_TRUE(journal.ok()) << written << " and " << zeros << ": " << journal.status();
      EXPECT_TRUE(journal->records().empty());
      EXPECT_EQ(Contents(), header);
    }
  }
}

TEST_F(JournalTest, RefusesOtherFilesAndOtherVersions) {
  Overwrite("#!/bin/sh\necho not a journal\n");
  EXPECT_EQ(Journal::Open(path_).status().code(), absl::StatusCode::kDataLoss);
  std::filesystem::remove(path_);
  Fill();
  std::string other = Contents();
  for (const int step : {-1, 2}) {  // an older one, a newer one
    other[8] = static_cast<char>(other[8] + step);
    Overwrite(other);
    EXPECT_EQ(Journal::Open(path_).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReadJournal(path_).status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST_F(JournalTest, SaysWhereItCannotBe) {
  const absl::Status status = Journal::Open(folder_ + "/none/journal").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(status.message(), "/none/journal")) << status;
  EXPECT_EQ(ReadJournal(path_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JournalTest, AFailedWritePoisonsIt) {
  auto journal = Journal::Open(path_);
  ASSERT_TRUE(journal.ok());
  ASSERT_TRUE(journal->Append({TermStarted{Term(1)}}).ok());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit full = before;
  full.rlim_cur = Contents().size() + 5;  // a record does not fit
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status failed = journal->Append({Stopping{"Ctrl-C", false}});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(journal->Append({Stopping{"Ctrl-C", false}}), failed) << "though there is room again";
  journal = absl::CancelledError();
  auto reopened = Journal::Open(path_);
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  EXPECT_EQ(reopened->records().size(), 1u);
  EXPECT_EQ(reopened->cut(), 5u);
}

}  // namespace
}  // namespace trainctl

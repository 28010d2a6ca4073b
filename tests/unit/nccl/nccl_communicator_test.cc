#include "runtime/nccl/nccl_communicator.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/nccl/nccl_peers.h"
#include "tests/unit/nccl/fake_nccl.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

FakeNccl& Fake() {
  static FakeNccl* fake = [] {
    void* library = ::dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != nullptr);
    return reinterpret_cast<FakeNccl* (*)()>(::dlsym(library, "FakeNcclState"))();
  }();
  return *fake;
}

void SpinUntil(const std::function<bool()>& condition) {
  const Instant deadline = Now() + seconds(20);
  while (!condition()) {
    ASSERT_LT(Now().ns, deadline.ns) << "the condition did not come";
    std::this_thread::yield();
  }
}

class FakeGpu : public CommunicatorGpu {
 public:
  explicit FakeGpu(std::atomic<bool>* done) : done_(done) {}
  std::string pci() const override { return "0000:01:00.0"; }
  std::function<absl::Status()> enter() const override {
    return [] { return absl::OkStatus(); };
  }
  CudaStream stream() const override { return nullptr; }
  absl::StatusOr<bool> IsDone(CudaStream) override { return done_->load(); }
  float* scratch() const override { return const_cast<float*>(&scratch_); }

 private:
  std::atomic<bool>* done_;
  float scratch_ = 0;
};

class FakeSession : public Session {
 public:
  explicit FakeSession(int world_size) {
    identity_.world_size = world_size;
    int fd = -1;
    page_ = std::make_unique<MappedPage>(MappedPage::Create(&fd).value());
    Fd closed_when_mapped(fd);
  }
  const SessionIdentity& identity() const override { return identity_; }
  WorkerPage& page() override { return *page_->get(); }
  absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view, absl::string_view value,
                                                    Duration) override {
    std::vector<std::string> all = {std::string(value)};
    for (const NcclPeer& other : others) all.push_back(EncodePeer(other));
    return all;
  }
  absl::StatusOr<frame::CommitGranted> ShardPrepared(Step, const frame::Shard&, Duration) override {
    return frame::CommitGranted();
  }
  void CheckpointPublished(Step) override {}
  void CheckpointRejected(Step, absl::string_view) override {}
  void ReportMetric(absl::string_view, double) override {}
  void Note(absl::string_view text) override { notes.emplace_back(text); }
  void OnLost(std::function<void(absl::string_view)> callback) override { lost = callback; }

  std::vector<NcclPeer> others;
  std::vector<std::string> notes;
  std::function<void(absl::string_view)> lost;

 private:
  SessionIdentity identity_;
  std::unique_ptr<MappedPage> page_;
};

class Nccl : public testing::Test {
 protected:
  Nccl() : session_(2) {
    FakeNccl& fake = Fake();
    fake.version = 22809;
    for (std::atomic<int>* number :
         {&fake.looks_of_init, &fake.looks_of_call, &fake.looks_of_finalize, &fake.result,
          &fake.async_result, &fake.id_result, &fake.inits, &fake.calls, &fake.looks,
          &fake.finalized, &fake.destroyed, &fake.aborted, &fake.enrolled, &fake.withdrawn}) {
      *number = 0;
    }
    fake.hold_init = fake.hold_call = fake.overlapped = false;
    session_.others = {{22809, "n2", "0000:01:00.0", "", ""}};
    options_.blocking = false;
    options_.collective_timeout = seconds(20);
    options_.connect_timeout = seconds(20);
  }
  ~Nccl() override { EXPECT_FALSE(Fake().overlapped) << "two threads were in NCCL at once"; }

  absl::Status Connect() {
    absl::StatusOr<const NcclApi*> api = LoadNccl(FAKE_NCCL);
    if (!api.ok()) return api.status();
    auto made = ConnectNccl(session_, options_, *api, std::make_unique<FakeGpu>(&done_));
    if (!made.ok()) return made.status();
    communicator_ = *std::move(made);
    return absl::OkStatus();
  }
  const CollectiveRecord& Newest() {
    return session_.page().ring[(session_.page().collectives - 1) % kCollectiveRingSize];
  }

  std::atomic<bool> done_{true};
  FakeSession session_;
  NcclOptions options_;
  std::unique_ptr<NcclCommunicator> communicator_;
  float data_[4] = {};
};

TEST_F(Nccl, IsPolledUntilItIsConnectedAndHasTakenACall) {
  Fake().looks_of_init = 5;
  Fake().looks_of_call = 3;
  ASSERT_TRUE(Connect().ok());
  EXPECT_EQ(Fake().looks, 6);
  EXPECT_EQ(Fake().blocking, 0);
  EXPECT_TRUE(communicator_->AllReduceSum(data_, 4).ok());
  EXPECT_EQ(Fake().calls, 1);
  EXPECT_EQ(Newest().bytes, 16u);
  EXPECT_NE(Newest().end_ns, 0);
}

TEST_F(Nccl, IsFinishedAndFreedAtTheEndAndNotAborted) {
  Fake().looks_of_finalize = 4;
  ASSERT_TRUE(Connect().ok());
  communicator_.reset();
  EXPECT_EQ(Fake().finalized, 1);
  EXPECT_EQ(Fake().destroyed, 1);
  EXPECT_EQ(Fake().aborted, 0);
}

TEST_F(Nccl, ThatIsNeverConnectedIsADeadlineAndAborted) {
  Fake().looks_of_init = -1;
  options_.connect_timeout = milliseconds(30);
  const absl::Status status = Connect();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(), HasSubstr("connect rank 0 of 2"));
  EXPECT_EQ(Fake().aborted, 1);
  EXPECT_EQ(Fake().destroyed, 0);
}

TEST_F(Nccl, ThatDoesNotTakeACallIsADeadline) {
  options_.collective_timeout = milliseconds(30);
  ASSERT_TRUE(Connect().ok());
  Fake().looks_of_call = -1;
  const absl::Status status = communicator_->Barrier();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(), HasSubstr("barrier: NCCL is not done"));
}

TEST_F(Nccl, GpuThatIsNeverDoneIsADeadlineAndItsEntryStaysOpen) {
  options_.collective_timeout = milliseconds(30);
  ASSERT_TRUE(Connect().ok());
  done_ = false;
  const absl::Status status = communicator_->AllReduceSum(data_, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(Fake().aborted, 1);
  EXPECT_EQ(Newest().end_ns, 0);
  EXPECT_EQ(communicator_->Barrier(), status) << "after an error only that error";
  communicator_.reset();
  EXPECT_EQ(Fake().aborted, 1);
  EXPECT_EQ(Fake().destroyed, 0);
}

TEST_F(Nccl, ErrorOfItsThreadsComesWithItsLastWords) {
  ASSERT_TRUE(Connect().ok());
  done_ = false;
  Fake().async_result = kNcclRemoteError;
  const absl::Status status = communicator_->AllReduceSum(data_, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr("all-reduce: NCCL 2.28.9 says remote process exited"));
  EXPECT_THAT(status.message(), HasSubstr("the last words of the library"));
  EXPECT_EQ(Fake().aborted, 1);
}

TEST_F(Nccl, GpuThatIsDoneAfterAnErrorIsAnErrorAllTheSame) {
  ASSERT_TRUE(Connect().ok());
  Fake().async_result = kNcclInternalError;
  EXPECT_EQ(communicator_->AllReduceSum(data_, 4).code(), absl::StatusCode::kInternal);
}

TEST_F(Nccl, AbortWakesWhoWaitsForTheGpu) {
  ASSERT_TRUE(Connect().ok());
  done_ = false;
  std::thread aborter([&] {
    SpinUntil([] { return Fake().calls > 0; });
    communicator_->Abort("rank 1 is gone");
  });
  const absl::Status status = communicator_->AllReduceSum(data_, 4);
  aborter.join();
  EXPECT_EQ(status, absl::AbortedError("rank 1 is gone"));
  EXPECT_EQ(Fake().aborted, 1);
}

TEST_F(Nccl, AbortWakesWhoWaitsForNcclToTakeACall) {
  ASSERT_TRUE(Connect().ok());
  Fake().looks_of_call = -1;
  std::thread aborter([&] {
    SpinUntil([] { return Fake().looks > 2; });
    communicator_->Abort("rank 1 is gone");
  });
  EXPECT_EQ(communicator_->Barrier(), absl::AbortedError("rank 1 is gone"));
  aborter.join();
  EXPECT_EQ(Fake().aborted, 1);
}

TEST_F(Nccl, AbortIsLeftToTheThreadThatIsInsideACall) {
  ASSERT_TRUE(Connect().ok());
  Fake().hold_call = true;
  std::thread aborter([&] {
    SpinUntil([] { return Fake().calls > 0; });
    communicator_->Abort("rank 1 is gone");
    EXPECT_EQ(Fake().aborted, 0);
    Fake().hold_call = false;
  });
  EXPECT_EQ(communicator_->Barrier(), absl::AbortedError("rank 1 is gone"));
  aborter.join();
  EXPECT_EQ(Fake().aborted, 1);
}

TEST_F(Nccl, LostSessionAborts) {
  ASSERT_TRUE(Connect().ok());
  session_.lost("the supervisor is gone");
  EXPECT_EQ(communicator_->Barrier(), absl::UnavailableError("the supervisor is gone"));
  EXPECT_EQ(Fake().aborted, 1);
}

TEST_F(Nccl, BlockingInitThatNeverReturnsIsLeftBehind) {
  options_.blocking = true;
  options_.connect_timeout = milliseconds(30);
  Fake().hold_init = true;
  const absl::Status status = Connect();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(), HasSubstr("end it"));
  EXPECT_EQ(Fake().aborted, 0) << "a thread is still inside";
  Fake().hold_init = false;
  SpinUntil([] { return Fake().inside == 0; });
}

TEST_F(Nccl, BlockingOneIsConnectedAndFinished) {
  options_.blocking = true;
  ASSERT_TRUE(Connect().ok());
  EXPECT_EQ(Fake().blocking, 1);
  EXPECT_TRUE(communicator_->AllReduceSum(data_, 4).ok());
  communicator_.reset();
  EXPECT_EQ(Fake().destroyed, 1);
  EXPECT_EQ(Fake().aborted, 0);
}

TEST_F(Nccl, OtherVersionOnAnotherNodeIsFoundBeforeAnythingIsConnected) {
  session_.others[0].version = 22703;
  EXPECT_THAT(Connect().message(), HasSubstr("2.27.3 at rank 1 on n2"));
  EXPECT_EQ(Fake().inits, 0);
}

TEST_F(Nccl, RankZeroSaysWhyItCannotBegin) {
  Fake().id_result = kNcclSystemError;
  EXPECT_THAT(Connect().message(), HasSubstr("make the unique id: NCCL 2.28.9 says"));
}

TEST_F(Nccl, OfAVersionThatCrashesAfterAnAbortIsNotConnectedTwice) {
  Fake().version = 22805;
  session_.others[0].version = 22805;
  // Of this process, another test may have aborted one before.
  if (Connect().ok()) communicator_->Abort("a test");
  communicator_.reset();
  const absl::Status again = Connect();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(again.message(), HasSubstr("2.28.5 crashes in a process"));
  Fake().version = session_.others[0].version = 22809;
  EXPECT_TRUE(Connect().ok());
}

TEST_F(Nccl, BuffersAreRegisteredAndWithdrawn) {
  ASSERT_TRUE(Connect().ok());
  {
    auto memory = communicator_->Allocate("bucket 0", 4096);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE((*memory)->registered());
    EXPECT_EQ(Fake().enrolled, 1);
  }
  EXPECT_EQ(Fake().withdrawn, 1);
}

TEST_F(Nccl, CallsWithAStreamReturnWhenEnqueuedAndEndInAwait) {
  ASSERT_TRUE(Connect().ok());
  done_ = false;
  ASSERT_TRUE(communicator_->EnqueueAllReduce(data_, 4, ElementType::kBFloat16, nullptr, 7).ok());
  EXPECT_EQ(Newest().bytes, 8u);
  EXPECT_EQ(Newest().dtype, 4u);
  EXPECT_EQ(Newest().bucket, 7);
  EXPECT_EQ(Newest().end_ns, 0);
  done_ = true;
  EXPECT_TRUE(communicator_->Await(nullptr).ok());
  EXPECT_NE(Newest().end_ns, 0);
}

TEST_F(Nccl, BytesHaveNoSum) {
  ASSERT_TRUE(Connect().ok());
  EXPECT_EQ(communicator_->EnqueueAllReduce(data_, 4, ElementType::kBytes, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainctl

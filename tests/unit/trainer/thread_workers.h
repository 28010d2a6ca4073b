// Several ranks as threads of one process: a communicator over shared memory that sums in rank
// order, and a session that grants every commit, so that the training loop runs whole in a test.
#ifndef TRAINCTL_TESTS_UNIT_TRAINER_THREAD_WORKERS_H_
#define TRAINCTL_TESTS_UNIT_TRAINER_THREAD_WORKERS_H_

#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/local/page.h"
#include "runtime/worker/communicator.h"
#include "runtime/worker/session.h"

namespace trainctl {

// What all ranks of one group share. A rank that ends early leaves the barrier, as a dead process
// leaves its connections: the others then fail.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : pieces_(static_cast<size_t>(size)), barrier_(size) {}
  int size() const { return static_cast<int>(pieces_.size()); }

  // Every rank gives `in`, and reads all of them before any goes on. False: some rank has left.
  bool Meet(int rank, const void* in, const std::function<void()>& read) {
    pieces_[rank] = in;
    barrier_.arrive_and_wait();
    const bool whole = left_ == 0;
    if (whole) read();
    barrier_.arrive_and_wait();
    return whole;
  }
  void Leave() {
    ++left_;
    barrier_.arrive_and_drop();
  }
  template <typename T>
  const T* piece(int rank) const {
    return static_cast<const T*>(pieces_[rank]);
  }

 private:
  std::vector<const void*> pieces_;
  std::barrier<> barrier_;
  std::atomic<int> left_ = 0;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup* group, int rank) : group_(group), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  absl::Status AllReduceSum(float* data, size_t count, int) override { return Sum(data, count); }
  absl::Status AllReduceSum(double* data, size_t count) override { return Sum(data, count); }
  absl::Status ReduceScatterSum(const float*, float*, size_t) override {
    return absl::UnimplementedError("reduce-scatter");
  }
  absl::Status AllGather(const void* in, void* out, size_t bytes) override {
    return Meet(in, [&] {
      for (int r = 0; r < size(); ++r) {
        std::memcpy(static_cast<char*>(out) + r * bytes, group_->piece<char>(r), bytes);
      }
    });
  }
  absl::Status Broadcast(void* data, size_t bytes, int root) override {
    std::vector<char> received(bytes);
    absl::Status met =
        Meet(data, [&] { std::memcpy(received.data(), group_->piece<char>(root), bytes); });
    if (met.ok() && rank_ != root) std::memcpy(data, received.data(), bytes);
    return met;
  }
  absl::Status Barrier() override {
    return Meet(nullptr, [] {});
  }
  void Abort(absl::string_view) override {}

 private:
  template <typename T>
  absl::Status Sum(T* data, size_t count) {
    std::vector<T> sum(count);
    absl::Status met = Meet(data, [&] {
      std::memcpy(sum.data(), group_->piece<T>(0), count * sizeof(T));
      for (int r = 1; r < size(); ++r) {
        for (size_t i = 0; i < count; ++i) sum[i] += group_->piece<T>(r)[i];
      }
    });
    if (met.ok()) std::memcpy(data, sum.data(), count * sizeof(T));
    return met;
  }
  absl::Status Meet(const void* in, const std::function<void()>& read) {
    return group_->Meet(rank_, in, read) ? absl::OkStatus()
                                         : absl::UnavailableError("a rank has left");
  }

  ThreadGroup* group_;
  int rank_;
};

// What the ranks told, as a coordinator would have heard it. Thread-safe while they run.
struct Heard {
  std::mutex mutex;
  std::map<std::string, double> metrics;
  std::vector<std::string> notes;
  std::vector<int64_t> published;
  std::vector<std::pair<int64_t, std::string>> rejected;
  std::map<int64_t, std::map<int, frame::Shard>> prepared;
  std::vector<int64_t> may_delete;  // given with every grant

  std::string NoteWith(const std::string& word) {
    for (const std::string& note : notes) {
      if (note.find(word) != std::string::npos) return note;
    }
    return "";
  }
};

class ThreadSession final : public Session {
 public:
  ThreadSession(Communicator* communicator, Heard* heard, int64_t epoch)
      : communicator_(communicator), heard_(heard), page_(NewPage()) {
    identity_.epoch = Epoch(epoch);
    identity_.rank = communicator->rank();
    identity_.world_size = communicator->size();
  }

  const SessionIdentity& identity() const override { return identity_; }
  WorkerPage& page() override { return *page_.get(); }
  absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view, absl::string_view,
                                                    Duration) override {
    return absl::UnimplementedError("exchange");
  }
  // Rank 0's grant needs every rank's shard, so the ranks meet; a real session lets the others go.
  absl::StatusOr<frame::CommitGranted> ShardPrepared(Step step, const frame::Shard& shard,
                                                     Duration) override {
    {
      std::lock_guard<std::mutex> lock(heard_->mutex);
      heard_->prepared[step.value][shard.rank] = shard;
    }
    absl::Status met = communicator_->Barrier();
    if (!met.ok()) return met;
    frame::CommitGranted granted;
    granted.term = 1;
    granted.epoch = identity_.epoch.value;
    granted.step = step.value;
    std::lock_guard<std::mutex> lock(heard_->mutex);
    granted.may_delete = heard_->may_delete;
    for (const auto& [rank, prepared] : heard_->prepared[step.value]) {
      if (identity_.rank == 0) granted.shards.push_back(prepared);
    }
    return granted;
  }
  void CheckpointPublished(Step step) override {
    std::lock_guard<std::mutex> lock(heard_->mutex);
    heard_->published.push_back(step.value);
  }
  void CheckpointRejected(Step step, absl::string_view reason) override {
    std::lock_guard<std::mutex> lock(heard_->mutex);
    heard_->rejected.emplace_back(step.value, std::string(reason));
  }
  void ReportMetric(absl::string_view name, double value) override {
    std::lock_guard<std::mutex> lock(heard_->mutex);
    heard_->metrics[std::string(name)] = value;
  }
  void Note(absl::string_view text) override {
    std::lock_guard<std::mutex> lock(heard_->mutex);
    heard_->notes.emplace_back(text);
  }
  void OnLost(std::function<void(absl::string_view)>) override {}

 private:
  static MappedPage NewPage() {
    int fd = -1;
    absl::StatusOr<MappedPage> page = MappedPage::Create(&fd);
    CHECK(page.ok());
    Fd closes(fd);
    return *std::move(page);
  }

  Communicator* communicator_;
  Heard* heard_;
  MappedPage page_;
  SessionIdentity identity_;
};

// Runs `body` as every rank of a group; returns each rank's status.
inline std::vector<absl::Status> RunRanks(
    int world_size, Heard* heard, int64_t epoch,
    const std::function<absl::Status(Session&, Communicator&)>& body) {
  ThreadGroup group(world_size);
  std::vector<absl::Status> statuses(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator communicator(&group, rank);
      ThreadSession session(&communicator, heard, epoch);
      statuses[rank] = body(session, communicator);
      group.Leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_UNIT_TRAINER_THREAD_WORKERS_H_

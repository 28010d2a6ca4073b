#include "runtime/worker/session.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

absl::StatusOr<int64_t> IntegerFromEnvironment(const char* name, std::optional<int64_t> fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') {
    if (fallback.has_value()) return *fallback;
    return absl::InvalidArgumentError(absl::StrCat("read the worker's environment: ", name,
                                                   " is not set; trainctl launch sets it"));
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) {
    return absl::InvalidArgumentError(absl::StrCat("read the worker's environment: ", name, "=",
                                                   text, " is not a number of 0 or more"));
  }
  return value;
}

absl::StatusOr<SessionIdentity> IdentityFromEnvironment(bool alone) {
  std::optional<int64_t> zero, one;
  if (alone) {
    zero = 0;
    one = 1;
  }
  SessionIdentity identity;
  ASSIGN_OR_RETURN(int64_t rank, IntegerFromEnvironment("RANK", zero));
  ASSIGN_OR_RETURN(int64_t world, IntegerFromEnvironment("WORLD_SIZE", one));
  ASSIGN_OR_RETURN(int64_t local_rank, IntegerFromEnvironment("LOCAL_RANK", zero));
  ASSIGN_OR_RETURN(int64_t local_world, IntegerFromEnvironment("LOCAL_WORLD_SIZE", one));
  ASSIGN_OR_RETURN(int64_t epoch, IntegerFromEnvironment("TRAINCTL_EPOCH", zero));
  if (rank >= world || local_rank >= local_world || local_world > world) {
    return absl::InvalidArgumentError(absl::StrCat(
        "read the worker's environment: RANK=", rank, " WORLD_SIZE=", world,
        " LOCAL_RANK=", local_rank, " LOCAL_WORLD_SIZE=", local_world, " contradict each other"));
  }
  identity.rank = static_cast<int>(rank);
  identity.world_size = static_cast<int>(world);
  identity.local_rank = static_cast<int>(local_rank);
  identity.local_world_size = static_cast<int>(local_world);
  identity.epoch = Epoch(epoch);
  const char* job = std::getenv("TRAINCTL_JOB_ID");
  if (job != nullptr) identity.job_id = job;
  return identity;
}

class AloneSession : public Session {
 public:
  AloneSession(SessionIdentity identity, MappedPage page)
      : identity_(std::move(identity)), page_(std::move(page)) {}

  const SessionIdentity& identity() const override { return identity_; }
  WorkerPage& page() override { return *page_.get(); }
  absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view /*name*/,
                                                    absl::string_view value,
                                                    Duration /*timeout*/) override {
    return std::vector<std::string>{std::string(value)};
  }
  absl::StatusOr<frame::CommitGranted> ShardPrepared(Step step, const frame::Shard& shard,
                                                     Duration /*timeout*/) override {
    frame::CommitGranted granted;
    granted.epoch = identity_.epoch.value;
    granted.step = step.value;
    granted.shards.push_back(shard);
    return granted;
  }
  void CheckpointPublished(Step) override {}
  void CheckpointRejected(Step step, absl::string_view reason) override {
    Note(absl::StrCat("checkpoint of step ", step.value, " is not used: ", reason));
  }
  void ReportMetric(absl::string_view, double) override {}
  void Note(absl::string_view text) override {
    const std::string line = absl::StrCat(text, "\n");
    WriteAll(STDERR_FILENO, line, "stderr").IgnoreError();
  }
  void OnLost(std::function<void(absl::string_view)>) override {}

 private:
  const SessionIdentity identity_;
  MappedPage page_;
};

class SupervisedSession : public Session {
 public:
  SupervisedSession(SessionIdentity identity, MappedPage page, Fd socket)
      : identity_(std::move(identity)), page_(std::move(page)), socket_(std::move(socket)) {}

  ~SupervisedSession() override {
    ::shutdown(socket_.get(), SHUT_RDWR);
    if (reader_.joinable()) reader_.join();
  }

  absl::Status Start() {
    frame::Hello hello;
    hello.incarnation = identity_.epoch.value;
    hello.rank = identity_.rank;
    RETURN_IF_ERROR(Send(hello));
    reader_ = std::thread([this] { Read(); });
    return absl::OkStatus();
  }

  const SessionIdentity& identity() const override { return identity_; }
  WorkerPage& page() override { return *page_.get(); }

  absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view name, absl::string_view value,
                                                    Duration timeout) override {
    const std::string key(name);
    {
      MutexLock lock(&mutex_);
      if (!exchanges_.emplace(key, std::nullopt).second) {
        return absl::FailedPreconditionError(
            absl::StrCat("exchange \"", name, "\": this name is in use in this epoch"));
      }
    }
    absl::Status sent = Send(frame::Exchange{identity_.epoch.value, identity_.rank, key,
                                             std::string(value), timeout.count()});
    MutexLock lock(&mutex_);
    if (!sent.ok()) {
      exchanges_.erase(key);
      return sent;
    }
    // The store answers with the names of the missing ranks when the time is over; the second on
    // top is for that answer to arrive.
    const auto answered = [this, &key]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return exchanges_[key].has_value() || !lost_.ok();
    };
    const bool done = mutex_.AwaitWithTimeout(absl::Condition(&answered),
                                              absl::Nanoseconds((timeout + seconds(1)).count()));
    std::optional<frame::ExchangeDone> answer = std::move(exchanges_[key]);
    exchanges_.erase(key);
    if (!answer.has_value()) {
      if (done) return lost_;
      return absl::DeadlineExceededError(
          absl::StrCat("exchange \"", name, "\": no answer after ", ToSeconds(timeout), " s"));
    }
    if (!answer->error.empty()) {
      return absl::DeadlineExceededError(absl::StrCat("exchange \"", name, "\": ", answer->error));
    }
    if (answer->values.size() != static_cast<size_t>(identity_.world_size)) {
      return absl::InternalError(absl::StrCat("exchange \"", name, "\": got ",
                                              answer->values.size(), " values from ",
                                              identity_.world_size, " ranks"));
    }
    return std::move(answer->values);
  }

  absl::StatusOr<frame::CommitGranted> ShardPrepared(Step step, const frame::Shard& shard,
                                                     Duration timeout) override {
    RETURN_IF_ERROR(Send(frame::ShardPrepared{identity_.epoch.value, step.value, shard}));
    frame::CommitGranted granted;
    granted.epoch = identity_.epoch.value;
    granted.step = step.value;
    if (identity_.rank != 0) return granted;
    MutexLock lock(&mutex_);
    const auto answered = [this, &step]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return grants_.contains(step.value) || !lost_.ok();
    };
    const bool done =
        mutex_.AwaitWithTimeout(absl::Condition(&answered), absl::Nanoseconds(timeout.count()));
    auto found = grants_.find(step.value);
    if (found == grants_.end()) {
      if (done) return lost_;
      return absl::DeadlineExceededError(absl::StrCat("commit the checkpoint of step ", step.value,
                                                      ": not granted after ", ToSeconds(timeout),
                                                      " s; some rank has not written its shard"));
    }
    granted = std::move(found->second);
    grants_.erase(grants_.begin(), ++found);
    return granted;
  }

  void CheckpointPublished(Step step) override {
    Send(frame::CheckpointPublished{identity_.epoch.value, step.value}).IgnoreError();
  }
  void CheckpointRejected(Step step, absl::string_view reason) override {
    Send(frame::CheckpointRejected{identity_.epoch.value, step.value, std::string(reason)})
        .IgnoreError();
  }
  void ReportMetric(absl::string_view name, double value) override {
    Send(frame::Metric{identity_.epoch.value, identity_.rank, std::string(name), value})
        .IgnoreError();
  }
  void Note(absl::string_view text) override {
    Send(frame::Note{identity_.epoch.value, identity_.rank, std::string(text)}).IgnoreError();
  }

  void OnLost(std::function<void(absl::string_view)> callback) override {
    MutexLock callback_lock(&callback_mutex_);
    absl::Status lost;
    {
      MutexLock lock(&mutex_);
      lost = lost_;
    }
    if (callback && !lost.ok()) {
      callback(lost.message());
      return;
    }
    on_lost_ = std::move(callback);
  }

 private:
  absl::Status Send(const frame::Frame& message) ABSL_LOCKS_EXCLUDED(mutex_, send_mutex_) {
    {
      MutexLock lock(&mutex_);
      if (!lost_.ok()) return lost_;
    }
    const std::string bytes = frame::Encode(message);
    MutexLock lock(&send_mutex_);
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n =
          ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Gone(ErrnoStatus(errno, "send").message());
      sent += static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }

  static absl::Status Gone(absl::string_view found) {
    return absl::UnavailableError(
        absl::StrCat("the supervisor of this worker is gone (", found, "); the worker has to end"));
  }

  void Read() {
    frame::Decoder decoder;
    char buffer[16384];
    absl::Status end;
    while (end.ok()) {
      const ssize_t n = ::recv(socket_.get(), buffer, sizeof(buffer), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        end = Gone(n == 0 ? "its socket is closed" : ErrnoStatus(errno, "receive").message());
        break;
      }
      decoder.Feed(absl::string_view(buffer, static_cast<size_t>(n)));
      while (end.ok()) {
        absl::StatusOr<std::optional<frame::Frame>> next = decoder.Next();
        if (!next.ok()) {
          end = Gone(next.status().message());
        } else if (!next->has_value()) {
          break;
        } else {
          Take(**std::move(next));
        }
      }
    }
    {
      MutexLock lock(&mutex_);
      lost_ = end;
    }
    MutexLock lock(&callback_mutex_);
    if (on_lost_) on_lost_(end.message());
    on_lost_ = nullptr;
  }

  void Take(frame::Frame message) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (auto* done = std::get_if<frame::ExchangeDone>(&message)) {
      auto waiting = exchanges_.find(done->name);
      if (done->epoch == identity_.epoch.value && waiting != exchanges_.end()) {
        waiting->second = std::move(*done);
      }
    } else if (auto* granted = std::get_if<frame::CommitGranted>(&message)) {
      if (granted->epoch == identity_.epoch.value) grants_[granted->step] = std::move(*granted);
    }
  }

  const SessionIdentity identity_;
  MappedPage page_;
  Fd socket_;
  std::thread reader_;
  Mutex send_mutex_;  // one frame at a time
  Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::optional<frame::ExchangeDone>> exchanges_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, frame::CommitGranted> grants_ ABSL_GUARDED_BY(mutex_);
  Mutex callback_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // held while the callback runs
  std::function<void(absl::string_view)> on_lost_ ABSL_GUARDED_BY(callback_mutex_);
};

absl::StatusOr<std::unique_ptr<Session>> Alone() {
  ASSIGN_OR_RETURN(SessionIdentity identity, IdentityFromEnvironment(/*alone=*/true));
  if (identity.world_size != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("start worker: WORLD_SIZE is ", identity.world_size,
                     " but TRAINCTL_SOCKET is not set, so it cannot find the others; start it with "
                     "trainctl launch"));
  }
  int fd = -1;
  ASSIGN_OR_RETURN(MappedPage page, MappedPage::Create(&fd));
  Fd closed_when_mapped(fd);
  return std::make_unique<AloneSession>(std::move(identity), std::move(page));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::FromEnvironment() {
  const char* socket_path = std::getenv("TRAINCTL_SOCKET");
  if (socket_path == nullptr || *socket_path == '\0') return Alone();
  ASSIGN_OR_RETURN(SessionIdentity identity, IdentityFromEnvironment(/*alone=*/false));
  const char* page_path = std::getenv("TRAINCTL_PAGE");
  if (page_path == nullptr || *page_path == '\0') {
    return absl::InvalidArgumentError(
        "read the worker's environment: TRAINCTL_SOCKET is set but TRAINCTL_PAGE is not");
  }
  ASSIGN_OR_RETURN(MappedPage page, MappedPage::Open(page_path));
  // From here on it is the page that tells whether this worker makes progress, not its silence.
  page->phase_since_ns.store(Now().ns);
  page->phase.store(static_cast<uint32_t>(WorkerPhase::kInit));
  ASSIGN_OR_RETURN(Fd socket, ConnectUnix(socket_path));
  auto session =
      std::make_unique<SupervisedSession>(std::move(identity), std::move(page), std::move(socket));
  RETURN_IF_ERROR(session->Start());
  return session;
}

}  // namespace trainctl

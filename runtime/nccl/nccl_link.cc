#include "runtime/nccl/nccl_link.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr Duration kEndPatience = seconds(5);
// NCCL's own threads are looked at less often than the GPU.
constexpr int kLooksBetweenErrors = 16;

std::atomic<bool> some_was_aborted{false};

absl::StatusCode CodeOf(NcclResult result) {
  switch (result) {
    case kNcclSystemError:
    case kNcclRemoteError:
      return absl::StatusCode::kUnavailable;
    case kNcclInvalidArgument:
    case kNcclInvalidUsage:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

// What a thread that may be left behind in NCCL shares with whoever waits for it.
struct Errand {
  Mutex mutex;
  bool over ABSL_GUARDED_BY(mutex) = false;
  absl::Status status ABSL_GUARDED_BY(mutex);
  NcclResult result ABSL_GUARDED_BY(mutex) = kNcclSuccess;
  NcclComm comm ABSL_GUARDED_BY(mutex) = nullptr;
};

// Runs `body` on a thread of its own. False: it was not over by the deadline and is left behind.
bool RunUntil(const std::shared_ptr<Errand>& errand, Instant deadline,
              const std::function<absl::Status()>& enter,
              const std::function<NcclResult(NcclComm*)>& body) {
  std::thread([errand, enter, body] {
    absl::Status status = enter();
    NcclComm comm = nullptr;
    const NcclResult result = status.ok() ? body(&comm) : kNcclSuccess;
    MutexLock lock(&errand->mutex);
    errand->status = std::move(status);
    errand->result = result;
    errand->comm = comm;
    errand->over = true;
  }).detach();
  MutexLock lock(&errand->mutex);
  return errand->mutex.AwaitWithTimeout(absl::Condition(&errand->over),
                                        absl::Nanoseconds((deadline - Now()).count()));
}

}  // namespace

bool NcclWasAborted() { return some_was_aborted.load(); }

NcclLink::NcclLink(const NcclApi* api, bool blocking, std::string name,
                   std::function<absl::Status()> enter)
    : api_(api), blocking_(blocking), name_(std::move(name)), enter_(std::move(enter)) {}

NcclLink::~NcclLink() {
  const Instant deadline = Now() + kEndPatience;
  if (blocking_ && failure().ok()) {
    FinishOnThread();
  } else if (failure().ok() && comm_ != nullptr &&
             Call("finish NCCL's communicator", api_->finalize, deadline).ok() && Enter().ok()) {
    // Nothing is left that it could wait for.
    api_->destroy(comm_);
    MutexLock lock(&mutex_);
    inside_ = false;
    stage_ = Stage::kGone;
  }
  // Somebody else's abort may still be running.
  MutexLock lock(&mutex_);
  const auto outside = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !inside_; };
  mutex_.AwaitWithTimeout(absl::Condition(&outside), absl::Nanoseconds(kEndPatience.count()));
}

absl::Status NcclLink::StatusOf(NcclResult result, absl::string_view doing) const {
  std::string text = absl::StrCat(doing, ": NCCL ", NcclVersionText(api_->version), " says ",
                                  api_->error_text(result));
  bool made = false;
  {
    MutexLock lock(&mutex_);
    made = stage_ == Stage::kMade;
  }
  const char* last = api_->last_error(made ? comm_ : nullptr);
  if (last != nullptr && *last != '\0') absl::StrAppend(&text, " (", last, ")");
  if (result == kNcclRemoteError) {
    absl::StrAppend(&text, "; another worker, or the network to it, failed first");
  } else if (result == kNcclSystemError) {
    absl::StrAppend(&text, "; NCCL_DEBUG=WARN says more (network interface, /dev/shm, limits)");
  }
  return absl::Status(CodeOf(result), text);
}

absl::Status NcclLink::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  MutexLock lock(&mutex_);
  return failure_;
}

absl::Status NcclLink::Enter() {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  inside_ = true;
  return absl::OkStatus();
}

void NcclLink::Leave() {
  {
    MutexLock lock(&mutex_);
    if (failure_.ok() || comm_ == nullptr || stage_ == Stage::kGone) {
      inside_ = false;
      return;
    }
    stage_ = Stage::kGone;  // it failed meanwhile: whoever said so left the abort to this thread
  }
  AbortAsEntered();
}

void NcclLink::AbortAsEntered() {
  some_was_aborted.store(true);
  api_->abort(comm_);  // also where it says that it fails, the memory of the GPU is no longer used
  MutexLock lock(&mutex_);
  inside_ = false;
}

void NcclLink::Fail(absl::Status status) {
  {
    MutexLock lock(&mutex_);
    if (failure_.ok()) {
      failure_ = std::move(status);
      failed_.store(true, std::memory_order_release);
    }
    if (inside_ || stage_ != Stage::kMade) return;
    stage_ = Stage::kGone;
    inside_ = true;
  }
  AbortAsEntered();
}

absl::Status NcclLink::FailWith(absl::Status status) {
  Fail(std::move(status));
  // What the GPU does to the caller's memory has an end before the caller hears of it.
  MutexLock lock(&mutex_);
  const auto outside = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !inside_; };
  mutex_.AwaitWithTimeout(absl::Condition(&outside), absl::Nanoseconds(kEndPatience.count()));
  return failure_;
}

absl::StatusOr<NcclResult> NcclLink::AsyncError() {
  RETURN_IF_ERROR(Enter());
  NcclResult state = kNcclSuccess;
  const NcclResult asked = api_->async_error(comm_, &state);
  Leave();
  return asked == kNcclSuccess ? state : asked;
}

absl::Status NcclLink::Settle(absl::string_view doing, NcclResult result, Instant deadline) {
  const Instant begin = Now();
  while (result == kNcclInProgress) {
    if (Now() >= deadline) {
      return FailWith(absl::DeadlineExceededError(
          absl::StrCat(doing, ": NCCL is not done after ", ToSeconds(deadline - begin),
                       " s; some worker did not come, or the network between them is blocked")));
    }
    absl::StatusOr<NcclResult> state = AsyncError();
    if (!state.ok()) return FailWith(state.status());
    result = *state;
    if (result == kNcclInProgress) PauseBetweenLooks(begin);
  }
  if (result != kNcclSuccess) return FailWith(StatusOf(result, doing));
  if (failed_.load(std::memory_order_acquire)) return FailWith(failure());
  return absl::OkStatus();
}

absl::Status NcclLink::Connect(const NcclUniqueId& id, int rank, int size, Instant deadline) {
  if (blocking_) return ConnectOnThread(id, rank, size, deadline);
  RETURN_IF_ERROR(Enter());
  NcclConfig config = MakeNcclConfig(api_->version, false, name_.c_str());
  const NcclResult result = api_->init(&comm_, size, id, rank, &config);
  if (comm_ != nullptr) {
    MutexLock lock(&mutex_);
    stage_ = Stage::kMade;
  }
  Leave();
  return Settle(absl::StrCat("connect rank ", rank, " of ", size), result, deadline);
}

absl::Status NcclLink::ConnectOnThread(const NcclUniqueId& id, int rank, int size,
                                       Instant deadline) {
  const std::string doing = absl::StrCat("connect rank ", rank, " of ", size);
  const Instant begin = Now();
  auto errand = std::make_shared<Errand>();
  const NcclApi* api = api_;
  auto name = std::make_shared<std::string>(name_);
  const bool over = RunUntil(errand, deadline, enter_, [=](NcclComm* comm) {
    NcclConfig config = MakeNcclConfig(api->version, true, name->c_str());
    return api->init(comm, size, id, rank, &config);
  });
  if (!over) {
    return FailWith(absl::DeadlineExceededError(absl::StrCat(
        doing, ": NCCL is not done after ", ToSeconds(deadline - begin),
        " s; some worker did not come. A thread of this process stays in NCCL: end it")));
  }
  absl::Status status;
  NcclResult result = kNcclSuccess;
  {
    MutexLock lock(&errand->mutex);
    status = errand->status;
    result = errand->result;
    comm_ = errand->comm;
  }
  if (!status.ok()) return FailWith(status);
  if (result != kNcclSuccess) return FailWith(StatusOf(result, doing));
  RETURN_IF_ERROR(Enter());
  {
    MutexLock lock(&mutex_);
    stage_ = Stage::kMade;
  }
  Leave();
  return failure();
}

void NcclLink::FinishOnThread() {
  if (comm_ == nullptr || !Enter().ok()) return;
  const NcclApi* api = api_;
  NcclComm comm = comm_;
  RunUntil(std::make_shared<Errand>(), Now() + kEndPatience, enter_, [=](NcclComm*) {
    const NcclResult result = api->finalize(comm);
    return result == kNcclSuccess ? api->destroy(comm) : result;
  });
  MutexLock lock(&mutex_);
  stage_ = Stage::kGone;
  inside_ = false;
}

absl::Status NcclLink::Call(absl::string_view doing,
                            const std::function<NcclResult(NcclComm)>& call, Instant deadline) {
  RETURN_IF_ERROR(Enter());
  const NcclResult result = call(comm_);
  Leave();
  if (result == kNcclSuccess && !failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  return Settle(doing, result, deadline);
}

absl::Status NcclLink::Wait(absl::string_view doing,
                            const std::function<absl::StatusOr<bool>()>& done, Instant deadline) {
  const Instant begin = Now();
  for (int look = 0;; ++look) {
    if (failed_.load(std::memory_order_acquire)) return FailWith(failure());
    absl::StatusOr<bool> over = done();
    if (!over.ok()) return FailWith(over.status());
    // Kernels that were aborted end as others do; what NCCL says counts.
    if (*over || look % kLooksBetweenErrors == kLooksBetweenErrors - 1) {
      absl::StatusOr<NcclResult> state = AsyncError();
      if (!state.ok()) return FailWith(state.status());
      if (*state != kNcclSuccess && *state != kNcclInProgress) {
        return FailWith(StatusOf(*state, doing));
      }
    }
    if (*over) return absl::OkStatus();
    if (Now() >= deadline) {
      return FailWith(absl::DeadlineExceededError(
          absl::StrCat(doing, ": not over after ", ToSeconds(deadline - begin),
                       " s; some worker did not take part, or its GPU hangs")));
    }
    PauseBetweenLooks(begin);
  }
}

}  // namespace trainctl

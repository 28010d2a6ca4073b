#include "runtime/worker/gloo_mesh.h"

#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr uint64_t kGoodbyeSlot = 1;
constexpr uint64_t kProbeSlot = 2;
constexpr auto kForever = std::chrono::milliseconds(std::chrono::hours(24 * 365));

// Runs `call` and turns what it throws into UNAVAILABLE with `what` in front.
template <typename Call>
absl::Status Guard(absl::string_view what, const Call& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat(what, ": ", e.what()));
  } catch (...) {
    return absl::UnavailableError(absl::StrCat(what, ": unknown exception of the transport"));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GlooMesh>> GlooMesh::Connect(int rank, int size,
                                                            const std::string& interface,
                                                            Duration timeout,
                                                            const Publish& publish) {
  // Gloo writes to sockets without MSG_NOSIGNAL: a peer's death must be an error, not our end.
  struct sigaction now;
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
  std::unique_ptr<GlooMesh> mesh(new GlooMesh(rank, size));
  if (size == 1) return mesh;
  std::string addresses;
  RETURN_IF_ERROR(mesh->CreatePairs(interface, timeout, &addresses));
  ASSIGN_OR_RETURN(std::vector<std::string> all, publish(addresses));
  RETURN_IF_ERROR(mesh->ConnectPairs(all, timeout));
  RETURN_IF_ERROR(mesh->StartWatching());
  return mesh;
}

absl::Status GlooMesh::CreatePairs(const std::string& interface, Duration timeout,
                                   std::string* addresses) {
  return Guard(absl::StrCat("open the transport on network interface ", interface), [&] {
    gloo::transport::tcp::attr attributes;
    attributes.iface = interface;
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    context_ = device_->createContext(rank_, size_);
    // A pair waits five times this for its connection.
    context_->setTimeout(std::chrono::duration_cast<std::chrono::milliseconds>(timeout / 5));
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const std::vector<char> address = context_->createPair(peer)->address().bytes();
      addresses->append(address.begin(), address.end());
    }
  });
}

absl::Status GlooMesh::ConnectPairs(const std::vector<std::string>& addresses, Duration timeout) {
  // Each side of a connection waits for a tick of the transport's loop; side by side these waits
  // cost one tick in all.
  std::vector<absl::Status> results(static_cast<size_t>(size_));
  std::vector<std::thread> threads;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::string& all = addresses[static_cast<size_t>(peer)];
    const size_t each = all.size() / static_cast<size_t>(size_ - 1);
    // A rank lists an address for every other rank, so the ranks above it are one place lower.
    const size_t place = static_cast<size_t>(rank_ > peer ? rank_ - 1 : rank_);
    if (each == 0 || all.size() % static_cast<size_t>(size_ - 1) != 0) {
      results[static_cast<size_t>(peer)] = absl::InternalError(
          absl::StrCat("rank ", peer, " published ", all.size(), " bytes of addresses"));
      continue;
    }
    const std::vector<char> address(all.begin() + static_cast<ptrdiff_t>(place * each),
                                    all.begin() + static_cast<ptrdiff_t>((place + 1) * each));
    threads.emplace_back([this, peer, address, timeout, &results] {
      results[static_cast<size_t>(peer)] =
          Guard(absl::StrCat("connect to rank ", peer, " within ", ToSeconds(timeout), " s"),
                [&] { context_->getPair(peer)->connect(address); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (absl::Status& result : results) RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::Status GlooMesh::StartWatching() {
  RETURN_IF_ERROR(Guard("start watching the connections", [&] {
    goodbye_bytes_.resize(static_cast<size_t>(size_));
    goodbye_ = context_->createUnboundBuffer(goodbye_bytes_.data(), goodbye_bytes_.size());
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) goodbye_->recv(peer, kGoodbyeSlot, static_cast<size_t>(peer), 1);
    }
  }));
  watcher_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}

void GlooMesh::Watch() {
  for (;;) {
    bool received = false;
    const absl::Status waited =
        Guard("connection", [&] { received = goodbye_->waitRecv(nullptr, kForever); });
    if (!waited.ok()) return FindDeadPeer(waited.message());
    if (!received) return;  // the destructor's wake-up
    MutexLock lock(&mutex_);
    TakeGoodbyes();
    if (EverybodyLeft()) return;
  }
}

// The rank that the transport reports is that of the newest arrival, so the bytes tell who it was.
void GlooMesh::TakeGoodbyes() {
  for (size_t peer = 0; peer < left_.size(); ++peer) {
    if (goodbye_bytes_[peer] == 0 || left_[peer] != 0) continue;
    left_[peer] = 1;
    if (waiting_ != nullptr && waiting_->peer_ == static_cast<int>(peer)) WakeWaiter();
    if (on_change_) on_change_();
  }
}

void GlooMesh::FindDeadPeer(absl::string_view found) {
  {
    MutexLock lock(&mutex_);
    if (waiting_ != nullptr && Now() >= waiting_until_) return;
  }
  char byte = 0;
  std::unique_ptr<gloo::transport::UnboundBuffer> probe = context_->createUnboundBuffer(&byte, 1);
  std::string dead;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    {
      MutexLock lock(&mutex_);
      if (left_[static_cast<size_t>(peer)] != 0) continue;
    }
    // Any call on a broken pair throws.
    if (!Guard("probe", [&] { probe->recv(peer, kProbeSlot, 0, 1); }).ok()) {
      absl::StrAppend(&dead, dead.empty() ? "" : ", ", peer);
    }
  }
  Fail(absl::UnavailableError(
      absl::StrCat("lost the connection to rank ", dead.empty() ? "?" : dead, " (", found, ")")));
}

bool GlooMesh::EverybodyLeft() const {
  return std::count(left_.begin(), left_.end(), 1) == size_ - 1;
}

void GlooMesh::WakeWaiter() {
  if (waiting_ == nullptr) return;
  if (waiting_for_ == Direction::kReceive) {
    waiting_->gloo_->abortWaitRecv();
  } else {
    waiting_->gloo_->abortWaitSend();
  }
}

void GlooMesh::SetFailure(absl::Status status) {
  failure_ = std::move(status);
  failed_.store(true);
  if (on_change_) on_change_();
}

void GlooMesh::Fail(absl::Status status) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return;
  SetFailure(std::move(status));
  WakeWaiter();
}

void GlooMesh::OnChange(std::function<void()> callback) {
  MutexLock lock(&mutex_);
  on_change_ = std::move(callback);
}

absl::Status GlooMesh::LeftOrLate(int peer, bool left, const Patience& patience) {
  if (left) {
    SetFailure(absl::UnavailableError(absl::StrCat(
        patience.what, ": rank ", peer, " has ended its part while others wait for it")));
    return failure_;
  }
  absl::Status late = absl::DeadlineExceededError(
      absl::StrCat(patience.what, ": rank ", peer, " did not come within the time-out of ",
                   ToSeconds(patience.timeout), " s; it is stopped, hangs or is far behind"));
  late.SetPayload(kAbsentRank, absl::Cord(absl::StrCat(peer)));
  SetFailure(std::move(late));
  return failure_;
}

absl::Status GlooMesh::Check(int peer, const Patience& patience) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  const bool left = left_[static_cast<size_t>(peer)] != 0;
  if (!left && Now() < patience.deadline) return absl::OkStatus();
  return LeftOrLate(peer, left, patience);
}

absl::Status GlooMesh::status() const {
  if (!failed_.load(std::memory_order_relaxed)) return absl::OkStatus();
  MutexLock lock(&mutex_);
  return failure_;
}

absl::StatusOr<GlooMesh::Buffer> GlooMesh::MakeBuffer(int peer, void* data, size_t bytes) {
  Buffer buffer;
  buffer.peer_ = peer;
  RETURN_IF_ERROR(Guard("register memory with the transport",
                        [&] { buffer.gloo_ = context_->createUnboundBuffer(data, bytes); }));
  return buffer;
}

absl::Status GlooMesh::PostReceive(Buffer& buffer, uint64_t slot, size_t offset, size_t bytes) {
  RETURN_IF_ERROR(status());
  absl::Status posted = Guard(absl::StrCat("receive from rank ", buffer.peer_),
                              [&] { buffer.gloo_->recv(buffer.peer_, slot, offset, bytes); });
  // One who left has sent all that it ever will, so a receive that nobody needs may stay undone.
  if (!posted.ok()) {
    MutexLock lock(&mutex_);
    if (left_[static_cast<size_t>(buffer.peer_)] != 0) return absl::OkStatus();
  }
  if (!posted.ok()) {
    Fail(posted);
    return status();
  }
  return posted;
}

absl::Status GlooMesh::Send(Buffer& buffer, uint64_t slot, size_t offset, size_t bytes) {
  RETURN_IF_ERROR(status());
  absl::Status sent = Guard(absl::StrCat("send to rank ", buffer.peer_),
                            [&] { buffer.gloo_->send(buffer.peer_, slot, offset, bytes); });
  if (!sent.ok()) {
    Fail(sent);
    return status();
  }
  return sent;
}

absl::Status GlooMesh::WaitReceived(Buffer& buffer, const Patience& patience) {
  return Wait(buffer, Direction::kReceive, patience);
}

absl::Status GlooMesh::WaitSent(Buffer& buffer, const Patience& patience) {
  return Wait(buffer, Direction::kSend, patience);
}

absl::Status GlooMesh::Wait(Buffer& buffer, Direction direction, const Patience& patience) {
  bool left = false;
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    left = left_[static_cast<size_t>(buffer.peer_)] != 0;
    waiting_ = &buffer;
    waiting_for_ = direction;
    waiting_until_ = left ? Instant{} : patience.deadline;
  }
  bool completed = false;
  const auto wait_until = [&](std::chrono::milliseconds timeout) {
    return Guard("connection", [&] {
      completed = direction == Direction::kReceive ? buffer.gloo_->waitRecv(nullptr, timeout)
                                                   : buffer.gloo_->waitSend(nullptr, timeout);
    });
  };
  const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(patience.deadline - Now(), Duration::zero()));
  absl::Status waited = wait_until(left ? std::chrono::milliseconds(0) : remaining);
  if (waited.ok() && !completed) {
    MutexLock lock(&mutex_);
    left = left_[static_cast<size_t>(buffer.peer_)] != 0;
    if (left) waiting_until_ = Instant{};
  }
  // Woken because the peer left: what it sent before has arrived, or never will.
  if (waited.ok() && !completed && left && status().ok()) {
    waited = wait_until(std::chrono::milliseconds(0));
  }
  MutexLock lock(&mutex_);
  waiting_ = nullptr;
  if (completed) return absl::OkStatus();
  if (!failure_.ok()) return failure_;
  if (left || Now() >= patience.deadline) return LeftOrLate(buffer.peer_, left, patience);
  SetFailure(absl::UnavailableError(
      absl::StrCat(patience.what, ": lost rank ", buffer.peer_, " (", waited.message(), ")")));
  return failure_;
}

void GlooMesh::Leave() {
  std::vector<Buffer> goodbyes(static_cast<size_t>(size_));
  char byte = 1;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    auto buffer = MakeBuffer(peer, &byte, 1);
    if (!buffer.ok()) return;
    goodbyes[static_cast<size_t>(peer)] = *std::move(buffer);
    if (!Send(goodbyes[static_cast<size_t>(peer)], kGoodbyeSlot, 0, 1).ok()) return;
  }
  MutexLock lock(&mutex_);
  const auto finished = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return EverybodyLeft() || !failure_.ok();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&finished), absl::Seconds(5));
}

GlooMesh::~GlooMesh() {
  if (watcher_.joinable()) {
    if (status().ok()) Leave();
    goodbye_->abortWaitRecv();
    watcher_.join();
  }
  Close();
}

void GlooMesh::Close() {
  if (context_ == nullptr) return;
  // Closing takes a tick of the transport's loop for each; side by side, one in all.
  std::vector<std::thread> threads;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    threads.emplace_back([this, peer] {
      Guard("close", [&] {
        if (auto& pair = context_->getPair(peer)) pair->close();
      }).IgnoreError();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace trainctl

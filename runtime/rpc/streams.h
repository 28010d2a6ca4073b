// Streams whose whole life is on one loop thread. gRPC's threads only post; every callback below
// and every method runs on the loop's thread, which must run until `on_closed`. A stream deletes
// itself after `on_closed`, the last callback; nobody touches it from then on.
#ifndef TRAINCTL_RUNTIME_RPC_STREAMS_H_
#define TRAINCTL_RUNTIME_RPC_STREAMS_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/loop.h"
#include "runtime/rpc/rpc_status.h"

namespace trainctl {

// Messages that wait for the one write that gRPC allows at a time.
template <typename Out>
class Outbox {
 public:
  // True if the caller must start writing front().
  bool Push(Out message) {
    const size_t size = message.ByteSizeLong();
    bytes_ += size;
    queue_.emplace_back(std::move(message), size);
    return queue_.size() == 1;
  }
  const Out* front() const { return &queue_.front().first; }
  // The front is written; true if another one is to be written.
  bool Pop() {
    bytes_ -= queue_.front().second;
    queue_.pop_front();
    return !queue_.empty();
  }
  // REQUIRES: nothing is being written.
  void Clear() {
    queue_.clear();
    bytes_ = 0;
  }
  bool empty() const { return queue_.empty(); }
  size_t bytes() const { return bytes_; }

 private:
  std::deque<std::pair<Out, size_t>> queue_;
  size_t bytes_ = 0;
};

// The writing half of a call that we serve. Reactor: ServerBidiReactor or ServerWriteReactor.
template <typename Reactor, typename Out>
class ServerSender : public Reactor {
 public:
  explicit ServerSender(Loop* loop) : loop_(loop) {}

  std::function<void()> on_written;  // one message less is queued
  std::function<void()> on_cancel;   // the other side is gone; Finish is called for the owner
  std::function<void()> on_closed;

  // Queued without bound: the owner looks at queued_bytes(). Dropped after Finish.
  void Send(Out message) {
    if (finishing_ || cancelled_) return;
    if (outbox_.Push(std::move(message))) this->StartWrite(outbox_.front());
  }
  size_t queued_bytes() const { return outbox_.bytes(); }
  // Ends the call after what is queued. Idempotent.
  void Finish(absl::Status status) {
    if (std::exchange(finishing_, true)) return;
    final_ = std::move(status);
    FinishIfIdle();
  }

 protected:
  Loop* loop() { return loop_; }
  bool finishing() const { return finishing_; }
  void Cancelled() {
    if (finished_ || std::exchange(cancelled_, true)) return;
    if (on_cancel) on_cancel();
    Finish(absl::CancelledError("the caller is gone"));
  }

 private:
  void FinishIfIdle() {
    if (finishing_ && outbox_.empty() && !std::exchange(finished_, true)) {
      Reactor::Finish(ToGrpc(final_));
    }
  }
  void Written(bool ok) {
    const bool more = outbox_.Pop();
    if (!ok) Cancelled();
    if (cancelled_) {
      outbox_.Clear();
    } else if (more) {
      this->StartWrite(outbox_.front());
    }
    if (on_written && !cancelled_) on_written();
    FinishIfIdle();
  }
  void OnWriteDone(bool ok) final {
    loop_->Post([this, ok] { Written(ok); });
  }
  void OnCancel() final {
    loop_->Post([this] { Cancelled(); });
  }
  void OnDone() final {
    loop_->Post([this] {
      std::unique_ptr<ServerSender> self(this);
      if (on_closed) on_closed();
    });
  }

  Loop* loop_;
  Outbox<Out> outbox_;
  absl::Status final_;
  bool finishing_ = false;
  bool finished_ = false;
  bool cancelled_ = false;
};

template <typename Out>
using ServerFeed = ServerSender<grpc::ServerWriteReactor<Out>, Out>;

template <typename In, typename Out>
class ServerStream final : public ServerSender<grpc::ServerBidiReactor<In, Out>, Out> {
 public:
  using ServerSender<grpc::ServerBidiReactor<In, Out>, Out>::ServerSender;
  std::function<void(In message)> on_message;
  // Called once by the service, after the callbacks are set.
  void Begin() { this->StartRead(&in_); }

 private:
  void OnReadDone(bool ok) override {
    this->loop()->Post([this, ok] {
      if (!ok) return this->Cancelled();
      // gRPC may have let go of a call that was ended, and nothing of it is wanted any more.
      if (this->finishing()) return;
      // Read on first: the callback may end the call.
      In message;
      message.Swap(&in_);
      this->StartRead(&in_);
      if (on_message) on_message(std::move(message));
    });
  }
  In in_;
};

// The reading half of a call that we make. Reactor: ClientBidiReactor or ClientReadReactor.
template <typename Reactor, typename In>
class ClientReceiver : public Reactor {
 public:
  explicit ClientReceiver(Loop* loop) { loop_.store(loop); }

  std::function<void(In message)> on_message;  // the next one is read when this returns
  std::function<void(absl::Status status)> on_closed;

  grpc::ClientContext* context() { return &context_; }
  // After the stub's async call was made with this reactor.
  void Begin() {
    this->AddHold();  // operations start outside of gRPC's own callbacks
    this->StartRead(&in_);
    this->StartCall();
  }
  // Ends the call; on_closed still follows.
  void Cancel() {
    context_.TryCancel();
    Release();
  }

 protected:
  Loop* loop() { return loop_; }
  bool released() const { return released_; }

 private:
  void Release() {
    if (!std::exchange(released_, true)) this->RemoveHold();
  }
  void OnReadDone(bool ok) final {
    loop()->Post([this, ok] {
      if (!ok || released_) return Release();
      In message;
      message.Swap(&in_);
      if (on_message) on_message(std::move(message));
      if (!released_) this->StartRead(&in_);
    });
  }
  void OnDone(const grpc::Status& status) final {
    loop()->Post([this, status = FromGrpc(status)] {
      std::unique_ptr<ClientReceiver> self(this);
      if (on_closed) on_closed(status);
    });
  }

  // Atomic, because what orders its making before the first callback is inside gRPC, where TSan
  // does not look.
  std::atomic<Loop*> loop_ = nullptr;
  grpc::ClientContext context_;
  In in_;
  bool released_ = false;
};

template <typename In>
using ClientFeed = ClientReceiver<grpc::ClientReadReactor<In>, In>;

template <typename Out, typename In>
class ClientStream final : public ClientReceiver<grpc::ClientBidiReactor<Out, In>, In> {
 public:
  using ClientReceiver<grpc::ClientBidiReactor<Out, In>, In>::ClientReceiver;
  // Queued without bound; dropped once the call has ended.
  void Send(Out message) {
    if (this->released()) return;
    if (outbox_.Push(std::move(message))) this->StartWrite(outbox_.front());
  }

 private:
  void OnWriteDone(bool ok) override {
    this->loop()->Post([this, ok] {
      const bool more = outbox_.Pop();
      if (ok && more && !this->released()) return this->StartWrite(outbox_.front());
      outbox_.Clear();
    });
  }
  Outbox<Out> outbox_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_STREAMS_H_

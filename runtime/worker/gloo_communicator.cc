#include "runtime/worker/gloo_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/codec.h"
#include "runtime/base/status.h"
#include "runtime/worker/collective_record.h"
#include "runtime/worker/gloo_mesh.h"
#include "runtime/worker/inboxes.h"
#include "runtime/worker/network_interface.h"
#include "runtime/worker/rank_order_sum.h"
#include "runtime/worker/shared_reduce.h"

namespace trainctl {
namespace {

constexpr size_t kPieceBytes = Inboxes::kPieceBytes;
// Up to this size every rank sends everything to every rank and sums itself: one hop instead of
// two. With two ranks both ways move the same bytes.
constexpr size_t kOneHopBytes = size_t{16} << 10;
constexpr size_t kOneHopBytesTwoRanks = kPieceBytes;

constexpr uint64_t kDataSlot = 17;

struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(Session& session, std::unique_ptr<GlooMesh> mesh, Duration timeout)
      : session_(session),
        mesh_(std::move(mesh)),
        rank_(session.identity().rank),
        size_(session.identity().world_size),
        timeout_(timeout) {}

  ~GlooCommunicator() override {
    session_.OnLost(nullptr);
    if (shared_ != nullptr) mesh_->OnChange(nullptr);
    // The mesh goes before the inboxes: while it waits for the others, they may still send to them,
    // and the transport's thread spins on a message whose memory is gone.
    mesh_.reset();
  }

  absl::Status Start() {
    for (int i = 1; i < size_; ++i) {
      Peer& peer = peers_.emplace_back();
      peer.rank = (rank_ + i) % size_;
    }
    RETURN_IF_ERROR(inboxes_.Open(mesh_.get(), rank_, size_));
    session_.OnLost(
        [this](absl::string_view reason) { mesh_->Fail(absl::UnavailableError(reason)); });
    return mesh_->status();
  }

  // Collective: `shared` is used if every rank has it.
  absl::Status ShareMemory(std::unique_ptr<SharedReduce> shared) {
    const char mine = shared != nullptr ? 1 : 0;
    std::vector<char> all(static_cast<size_t>(size_));
    patience_ = {"agree on shared memory", timeout_, Now() + timeout_};
    RETURN_IF_ERROR(Gather(&mine, all.data(), 1));
    if (std::count(all.begin(), all.end(), 1) != size_) return absl::OkStatus();
    shared_ = std::move(shared);
    mesh_->OnChange([this] { shared_->Wake(); });
    return mesh_->status();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::Status AllReduceSum(float* data, size_t count, int bucket) override {
    return AllReduce(data, count, ElementType::kFloat32, bucket);
  }
  absl::Status AllReduceSum(double* data, size_t count) override {
    return AllReduce(data, count, ElementType::kFloat64, -1);
  }
  absl::Status ReduceScatterSum(const float* data, float* out, size_t count) override;
  absl::Status AllGather(const void* in, void* out, size_t bytes) override {
    return Recorded(CollectiveOp::kAllGather, bytes * static_cast<size_t>(size_),
                    ElementType::kBytes, -1, [&] { return Gather(in, out, bytes); });
  }
  absl::Status Broadcast(void* data, size_t bytes, int root) override;
  absl::Status Barrier() override {
    return Recorded(CollectiveOp::kBarrier, 0, ElementType::kBytes, -1,
                    [&] { return Gather(nullptr, nullptr, 0); });
  }

  void Abort(absl::string_view reason) override { mesh_->Fail(absl::AbortedError(reason)); }

 private:
  struct Peer {
    int rank = 0;
    GlooMesh::Buffer data;  // the caller's memory, during a collective
    size_t sends = 0;       // not yet waited for
  };

  template <typename Body>
  absl::Status Recorded(CollectiveOp op, size_t bytes, ElementType type, int bucket,
                        const Body& body) {
    RETURN_IF_ERROR(mesh_->status());
    CollectiveScope scope(&session_.page(), op, bytes, type, bucket);
    inboxes_.Begin({++collectives_, bytes, op, type});
    if (shared_ != nullptr && op != CollectiveOp::kAllReduce) {
      shared_->BeginElsewhere(inboxes_.shape());
    }
    patience_ = {absl::StrCat(CollectiveOpName(op), " number ", collectives_), timeout_,
                 Now() + timeout_};
    absl::Status result = body();
    if (!result.ok()) {
      scope.LeaveOpen();
      mesh_->Fail(result);
      mesh_->Close();
    }
    for (Peer& peer : peers_) peer.data = GlooMesh::Buffer();
    return result;
  }

  absl::Status Register(const void* data, size_t bytes) {
    for (Peer& peer : peers_) {
      peer.sends = 0;
      ASSIGN_OR_RETURN(peer.data, mesh_->MakeBuffer(peer.rank, const_cast<void*>(data), bytes));
    }
    return absl::OkStatus();
  }
  absl::Status Send(Peer& peer, uint64_t slot, size_t offset, size_t bytes) {
    ++peer.sends;
    return mesh_->Send(peer.data, slot, offset, bytes);
  }
  absl::Status WaitAllSent() {
    for (Peer& peer : peers_) {
      for (; peer.sends > 0; --peer.sends) {
        RETURN_IF_ERROR(mesh_->WaitSent(peer.data, patience_));
      }
    }
    return inboxes_.WaitSent(patience_);
  }
  // Elements whose sum this rank makes.
  Range Chunk(int rank, size_t count) const {
    const size_t ranks = static_cast<size_t>(size_);
    const size_t each = ((count + ranks - 1) / ranks + 15) / 16 * 16;
    const size_t begin = std::min(count, each * static_cast<size_t>(rank));
    return {begin, std::min(count, begin + each)};
  }

  template <typename T>
  absl::Status AllReduce(T* data, size_t count, ElementType type, int bucket) {
    return Recorded(CollectiveOp::kAllReduce, count * sizeof(T), type, bucket, [&] {
      if (size_ == 1) return absl::OkStatus();
      if (shared_ != nullptr) {
        return shared_->AllReduceSum(
            data, count, inboxes_.shape(), patience_.deadline,
            [this](int peer, Instant) { return mesh_->Check(peer, patience_); });
      }
      const size_t limit = size_ == 2 ? kOneHopBytesTwoRanks : kOneHopBytes;
      return count * sizeof(T) <= limit ? OneHop(data, count) : TwoHops(data, count);
    });
  }

  // Takes one piece from every peer and sums it with `mine` into `out`, in rank order. Of no
  // elements too: every peer's first piece is to be looked at.
  template <typename T>
  absl::Status SumPiece(const T* mine, T* out, size_t count) {
    std::vector<const T*> sources(static_cast<size_t>(size_));
    sources[static_cast<size_t>(rank_)] = mine;
    for (Peer& peer : peers_) {
      ASSIGN_OR_RETURN(const void* piece, inboxes_.Take(peer.rank, patience_));
      sources[static_cast<size_t>(peer.rank)] = static_cast<const T*>(piece);
    }
    SumInRankOrder(sources, out, count);
    for (Peer& peer : peers_) RETURN_IF_ERROR(inboxes_.GiveBack(peer.rank));
    return absl::OkStatus();
  }

  // REQUIRES: at most one piece.
  template <typename T>
  absl::Status OneHop(T* data, size_t count) {
    for (Peer& peer : peers_) {
      RETURN_IF_ERROR(inboxes_.SendFirst(peer.rank, data, count * sizeof(T)));
    }
    RETURN_IF_ERROR(WaitAllSent());
    return SumPiece(data, data, count);
  }

  // Sends every peer the pieces of the chunk that it sums; piece by piece, so that all start early.
  template <typename T>
  absl::Status SendChunks(const T* data, const std::vector<Range>& chunks) {
    const size_t elements = kPieceBytes / sizeof(T);
    for (Peer& peer : peers_) {
      const Range& chunk = chunks[static_cast<size_t>(peer.rank)];
      const size_t n = std::min(elements, chunk.size());
      RETURN_IF_ERROR(inboxes_.SendFirst(peer.rank, data + chunk.begin, n * sizeof(T)));
    }
    for (size_t offset = elements; offset < chunks[0].size(); offset += elements) {
      for (Peer& peer : peers_) {
        const Range& chunk = chunks[static_cast<size_t>(peer.rank)];
        if (offset >= chunk.size()) continue;
        const size_t n = std::min(elements, chunk.size() - offset);
        RETURN_IF_ERROR(
            Send(peer, Inboxes::kSlot, (chunk.begin + offset) * sizeof(T), n * sizeof(T)));
      }
    }
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status TwoHops(T* data, size_t count) {
    const size_t elements = kPieceBytes / sizeof(T);
    std::vector<Range> chunks;
    for (int rank = 0; rank < size_; ++rank) chunks.push_back(Chunk(rank, count));
    RETURN_IF_ERROR(Register(data, count * sizeof(T)));
    // A sum arrives where its terms were: its owner sends it after it got those terms from here.
    for (Peer& peer : peers_) {
      const Range& chunk = chunks[static_cast<size_t>(peer.rank)];
      for (size_t at = chunk.begin; at < chunk.end; at += elements) {
        const size_t n = std::min(elements, chunk.end - at);
        RETURN_IF_ERROR(mesh_->PostReceive(peer.data, kDataSlot, at * sizeof(T), n * sizeof(T)));
      }
    }
    RETURN_IF_ERROR(SendChunks<T>(data, chunks));
    const Range& own = chunks[static_cast<size_t>(rank_)];
    if (own.size() == 0) RETURN_IF_ERROR(inboxes_.TakeEmpty(patience_));
    for (size_t at = own.begin; at < own.end; at += elements) {
      const size_t n = std::min(elements, own.end - at);
      RETURN_IF_ERROR(SumPiece(data + at, data + at, n));
      for (Peer& peer : peers_) {
        RETURN_IF_ERROR(Send(peer, kDataSlot, at * sizeof(T), n * sizeof(T)));
      }
    }
    for (Peer& peer : peers_) {
      const Range& chunk = chunks[static_cast<size_t>(peer.rank)];
      for (size_t at = chunk.begin; at < chunk.end; at += elements) {
        RETURN_IF_ERROR(mesh_->WaitReceived(peer.data, patience_));
      }
    }
    return WaitAllSent();
  }

  absl::Status Gather(const void* in, void* out, size_t bytes);

  Session& session_;
  std::unique_ptr<GlooMesh> mesh_;
  std::unique_ptr<SharedReduce> shared_;  // empty: everything goes through the mesh
  const int rank_;
  const int size_;
  const Duration timeout_;
  std::vector<Peer> peers_;  // starting after this rank, so that not all send to one rank at once
  Patience patience_;
  uint64_t collectives_ = 0;
  Inboxes inboxes_;
};

absl::Status GlooCommunicator::ReduceScatterSum(const float* data, float* out, size_t count) {
  const size_t bytes = count * sizeof(float) * static_cast<size_t>(size_);
  return Recorded(CollectiveOp::kReduceScatter, bytes, ElementType::kFloat32, -1, [&] {
    std::vector<Range> chunks;
    for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
      chunks.push_back({rank * count, (rank + 1) * count});
    }
    RETURN_IF_ERROR(Register(data, bytes));
    RETURN_IF_ERROR(SendChunks(data, chunks));
    if (count == 0) RETURN_IF_ERROR(inboxes_.TakeEmpty(patience_));
    const float* own = data + chunks[static_cast<size_t>(rank_)].begin;
    const size_t elements = kPieceBytes / sizeof(float);
    for (size_t at = 0; at < count; at += elements) {
      RETURN_IF_ERROR(SumPiece(own + at, out + at, std::min(elements, count - at)));
    }
    return WaitAllSent();
  });
}

absl::Status GlooCommunicator::Gather(const void* in, void* out, size_t bytes) {
  char* const all = static_cast<char*>(out);
  const auto place = [&](int rank) { return bytes * static_cast<size_t>(rank); };
  const bool small = bytes <= kPieceBytes;
  if (bytes > 0) std::memmove(all + place(rank_), in, bytes);
  for (Peer& peer : peers_) {
    RETURN_IF_ERROR(inboxes_.SendFirst(peer.rank, all + place(rank_), small ? bytes : 0));
  }
  if (small) {
    for (Peer& peer : peers_) {
      ASSIGN_OR_RETURN(const void* piece, inboxes_.Take(peer.rank, patience_));
      if (bytes > 0) std::memcpy(all + place(peer.rank), piece, bytes);
      RETURN_IF_ERROR(inboxes_.GiveBack(peer.rank));
    }
    return WaitAllSent();
  }
  RETURN_IF_ERROR(inboxes_.TakeEmpty(patience_));
  RETURN_IF_ERROR(Register(out, bytes * static_cast<size_t>(size_)));
  for (Peer& peer : peers_) {
    RETURN_IF_ERROR(mesh_->PostReceive(peer.data, kDataSlot, place(peer.rank), bytes));
  }
  for (Peer& peer : peers_) RETURN_IF_ERROR(Send(peer, kDataSlot, place(rank_), bytes));
  for (Peer& peer : peers_) RETURN_IF_ERROR(mesh_->WaitReceived(peer.data, patience_));
  return WaitAllSent();
}

absl::Status GlooCommunicator::Broadcast(void* data, size_t bytes, int root) {
  return Recorded(CollectiveOp::kBroadcast, bytes, ElementType::kBytes, -1, [&]() -> absl::Status {
    const bool small = bytes <= kPieceBytes;
    if (!small) RETURN_IF_ERROR(Register(data, bytes));
    for (Peer& peer : peers_) {
      if (rank_ == root) {
        RETURN_IF_ERROR(inboxes_.SendFirst(peer.rank, data, small ? bytes : 0));
        if (!small) RETURN_IF_ERROR(Send(peer, kDataSlot, 0, bytes));
      } else if (peer.rank == root) {
        ASSIGN_OR_RETURN(const void* piece, inboxes_.Take(root, patience_));
        if (small && bytes > 0) std::memcpy(data, piece, bytes);
        RETURN_IF_ERROR(inboxes_.GiveBack(root));
        if (small) continue;
        RETURN_IF_ERROR(mesh_->PostReceive(peer.data, kDataSlot, 0, bytes));
        RETURN_IF_ERROR(mesh_->WaitReceived(peer.data, patience_));
      }
    }
    return WaitAllSent();
  });
}

// One exchange for both: the address of this rank's mesh, and where rank 0's shared memory lies.
absl::StatusOr<std::vector<std::string>> PublishBoth(Session& session, Duration timeout,
                                                     const std::string& address,
                                                     const std::string& mine,
                                                     std::string* location_of_zero) {
  Writer writer;
  writer.Field(address);
  writer.Field(mine);
  ASSIGN_OR_RETURN(std::vector<std::string> all, session.Exchange("gloo", writer.Take(), timeout));
  std::vector<std::string> addresses(all.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    Reader reader(all[rank]);
    std::string location;
    reader.Field(addresses[rank]);
    reader.Field(location);
    if (!reader.AtEnd()) {
      return absl::InvalidArgumentError(
          absl::StrCat("connect the workers: rank ", rank, " published something unreadable"));
    }
    if (rank == 0) *location_of_zero = std::move(location);
  }
  return addresses;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(Session& session,
                                                          const CommunicatorOptions& options) {
  const SessionIdentity& identity = session.identity();
  std::string interface = options.interface;
  if (interface.empty() && identity.world_size > 1) {
    ASSIGN_OR_RETURN(interface, ChooseInterface(identity.local_world_size == identity.world_size));
  }
  const bool share = options.shared_memory && identity.world_size > 1 &&
                     identity.local_world_size == identity.world_size;
  std::unique_ptr<SharedReduce> shared;
  if (share && identity.rank == 0) {
    // Without it, all goes through the mesh.
    if (auto made = SharedReduce::Create(0, identity.world_size); made.ok()) {
      shared = *std::move(made);
    }
  }
  std::string location;
  const auto publish = [&](const std::string& address) {
    return PublishBoth(session, options.connect_timeout, address,
                       shared != nullptr ? shared->location() : "", &location);
  };
  ASSIGN_OR_RETURN(std::unique_ptr<GlooMesh> mesh,
                   GlooMesh::Connect(identity.rank, identity.world_size, interface,
                                     options.connect_timeout, publish));
  if (share && identity.rank != 0) {
    if (auto opened = SharedReduce::Open(location, identity.rank, identity.world_size);
        opened.ok()) {
      shared = *std::move(opened);
    }
  }
  auto communicator =
      std::make_unique<GlooCommunicator>(session, std::move(mesh), options.collective_timeout);
  RETURN_IF_ERROR(communicator->Start());
  if (share) RETURN_IF_ERROR(communicator->ShareMemory(std::move(shared)));
  return communicator;
}

}  // namespace trainctl

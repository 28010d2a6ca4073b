#include "runtime/worker/inboxes.h"

#include <cstring>
#include <utility>

#include "runtime/base/status.h"

namespace trainctl {
namespace {

// A slow receiver holds at most this many pieces of each peer.
constexpr size_t kPieces = 4;
constexpr size_t kHeadBytes = 64;  // a shape, and what follows aligned for any element
constexpr size_t kStride = Inboxes::kPieceBytes + kHeadBytes;
static_assert(sizeof(CollectiveShape) <= kHeadBytes);

}  // namespace

absl::Status Inboxes::Open(GlooMesh* mesh, int rank, int size) {
  mesh_ = mesh;
  rank_ = rank;
  peers_.resize(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    Peer& p = peer(r);
    p.memory.resize(kPieces * kStride / sizeof(double));
    p.outgoing.resize(kStride / sizeof(double));
    ASSIGN_OR_RETURN(p.inbox, mesh->MakeBuffer(r, p.memory.data(), kPieces * kStride));
    ASSIGN_OR_RETURN(p.outbox, mesh->MakeBuffer(r, p.outgoing.data(), kStride));
    for (size_t piece = 0; piece < kPieces; ++piece) {
      RETURN_IF_ERROR(mesh->PostReceive(p.inbox, kSlot, piece * kStride, kStride));
    }
  }
  return absl::OkStatus();
}

void Inboxes::Begin(const CollectiveShape& shape) {
  shape_ = shape;
  for (Peer& p : peers_) p.begun = false;
}

absl::Status Inboxes::SendFirst(int rank, const void* data, size_t bytes) {
  Peer& p = peer(rank);
  char* const out = reinterpret_cast<char*>(p.outgoing.data());
  std::memcpy(out, &shape_, sizeof(shape_));
  if (bytes > 0) std::memcpy(out + kHeadBytes, data, bytes);
  p.sent = true;
  return mesh_->Send(p.outbox, kSlot, 0, kHeadBytes + bytes);
}

absl::Status Inboxes::WaitSent(const Patience& patience) {
  for (Peer& p : peers_) {
    if (std::exchange(p.sent, false)) RETURN_IF_ERROR(mesh_->WaitSent(p.outbox, patience));
  }
  return absl::OkStatus();
}

absl::StatusOr<const void*> Inboxes::Take(int rank, const Patience& patience) {
  Peer& p = peer(rank);
  RETURN_IF_ERROR(mesh_->WaitReceived(p.inbox, patience));
  const char* const piece =
      reinterpret_cast<const char*>(p.memory.data()) + (p.next % kPieces) * kStride;
  if (std::exchange(p.begun, true)) return piece;
  CollectiveShape theirs;
  std::memcpy(&theirs, piece, sizeof(theirs));
  RETURN_IF_ERROR(CompareShapes(rank_, shape_, rank, theirs));
  return piece + kHeadBytes;
}

absl::Status Inboxes::GiveBack(int rank) {
  Peer& p = peer(rank);
  return mesh_->PostReceive(p.inbox, kSlot, (p.next++ % kPieces) * kStride, kStride);
}

absl::Status Inboxes::TakeEmpty(const Patience& patience) {
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    if (r == rank_) continue;
    RETURN_IF_ERROR(Take(r, patience).status());
    RETURN_IF_ERROR(GiveBack(r));
  }
  return absl::OkStatus();
}

}  // namespace trainctl

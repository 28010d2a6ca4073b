#include "runtime/worker/shape_exchange.h"

#include <cstdint>
#include <utility>

#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr uint64_t kShapeSlot = 18;
constexpr size_t kBytes = sizeof(CollectiveShape);

}  // namespace

absl::Status ShapeExchange::Open(GlooMesh* mesh, int rank, int size, size_t ahead) {
  mesh_ = mesh;
  rank_ = rank;
  peers_.resize(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    Peer& peer = peers_[static_cast<size_t>(r)];
    peer.memory.resize(ahead);
    ASSIGN_OR_RETURN(peer.inbox, mesh->MakeBuffer(r, peer.memory.data(), ahead * kBytes));
    ASSIGN_OR_RETURN(peer.outbox, mesh->MakeBuffer(r, &own_, kBytes));
    for (size_t i = 0; i < ahead; ++i) {
      RETURN_IF_ERROR(mesh->PostReceive(peer.inbox, kShapeSlot, i * kBytes, kBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status ShapeExchange::Send(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  peer.sent = true;
  return mesh_->Send(peer.outbox, kShapeSlot, 0, kBytes);
}

absl::Status ShapeExchange::SendToAll() {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank != rank_) RETURN_IF_ERROR(Send(rank));
  }
  return absl::OkStatus();
}

absl::Status ShapeExchange::Check(int rank, const Patience& patience) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  RETURN_IF_ERROR(mesh_->WaitReceived(peer.inbox, patience));
  const size_t place = peer.taken++ % peer.memory.size();
  RETURN_IF_ERROR(CompareShapes(rank_, own_, rank, peer.memory[place]));
  return mesh_->PostReceive(peer.inbox, kShapeSlot, place * kBytes, kBytes);
}

absl::Status ShapeExchange::CheckAll(const Patience& patience) {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank != rank_) RETURN_IF_ERROR(Check(rank, patience));
  }
  return absl::OkStatus();
}

absl::Status ShapeExchange::WaitSent(const Patience& patience) {
  for (Peer& peer : peers_) {
    if (std::exchange(peer.sent, false)) RETURN_IF_ERROR(mesh_->WaitSent(peer.outbox, patience));
  }
  return absl::OkStatus();
}

}  // namespace trainctl

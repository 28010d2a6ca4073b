// Where a rank's pieces from every other rank arrive. Receives are always posted, so that a sender
// never waits for the receiver's word. The first piece of a collective begins with what its sender
// takes that collective to be, and is refused if this rank is at another one.
#ifndef TRAINCTL_RUNTIME_WORKER_INBOXES_H_
#define TRAINCTL_RUNTIME_WORKER_INBOXES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/worker/collective_shape.h"
#include "runtime/worker/gloo_mesh.h"

namespace trainctl {

// Same thread as the mesh's transfers. REQUIRES: outlives the mesh, which transfers into it.
class Inboxes {
 public:
  // Large messages travel in pieces, so that sums and both directions overlap.
  static constexpr size_t kPieceBytes = size_t{512} << 10;
  static constexpr uint64_t kSlot = 16;  // of the mesh: pieces after the first are sent to it too

  absl::Status Open(GlooMesh* mesh, int rank, int size);

  // Begins a collective. REQUIRES: WaitSent after the last one.
  void Begin(const CollectiveShape& shape);
  const CollectiveShape& shape() const { return shape_; }

  // Sends the first piece, of which `bytes` may be 0. `data` is copied.
  absl::Status SendFirst(int peer, const void* data, size_t bytes);
  absl::Status WaitSent(const Patience& patience);

  // The next piece of that rank, valid until GiveBack. INVALID_ARGUMENT: it is at another
  // collective.
  absl::StatusOr<const void*> Take(int peer, const Patience& patience);
  absl::Status GiveBack(int peer);
  // Takes a first piece without data from every rank: before anything of theirs is read into the
  // caller's memory, because a longer message than expected ends the process in the transport.
  absl::Status TakeEmpty(const Patience& patience);

 private:
  struct Peer {
    std::vector<double> memory;  // several pieces
    GlooMesh::Buffer inbox;
    size_t next = 0;     // pieces taken so far
    bool begun = false;  // the first piece of this collective is taken
    std::vector<double> outgoing;
    GlooMesh::Buffer outbox;  // of `outgoing`
    bool sent = false;        // and not yet waited for
  };
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }

  GlooMesh* mesh_ = nullptr;
  int rank_ = 0;
  CollectiveShape shape_;
  std::vector<Peer> peers_;  // by rank; this one's stays empty
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_INBOXES_H_

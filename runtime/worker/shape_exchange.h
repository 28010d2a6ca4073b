// Ranks tell each other what they take the collective to be, over the mesh, before any of them
// reads the others' data: a message longer than expected ends a process inside the transport.
#ifndef TRAINCTL_RUNTIME_WORKER_SHAPE_EXCHANGE_H_
#define TRAINCTL_RUNTIME_WORKER_SHAPE_EXCHANGE_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "runtime/worker/collective_shape.h"
#include "runtime/worker/gloo_mesh.h"

namespace trainctl {

// Same thread as the mesh's transfers. REQUIRES: outlives the mesh, which transfers into it.
class ShapeExchange {
 public:
  // Posts receives for `ahead` shapes of every other rank, so that a root of broadcasts waits for
  // nobody.
  absl::Status Open(GlooMesh* mesh, int rank, int size, size_t ahead);

  void Begin(const CollectiveShape& shape) { own_ = shape; }
  const CollectiveShape& own() const { return own_; }

  absl::Status Send(int peer);
  absl::Status SendToAll();
  // INVALID_ARGUMENT: that rank is at another collective.
  absl::Status Check(int peer, const Patience& patience);
  absl::Status CheckAll(const Patience& patience);
  absl::Status WaitSent(const Patience& patience);  // then Begin may follow

 private:
  struct Peer {
    std::vector<CollectiveShape> memory;
    GlooMesh::Buffer inbox;
    GlooMesh::Buffer outbox;  // of `own_`
    size_t taken = 0;
    bool sent = false;  // and not yet waited for
  };

  GlooMesh* mesh_ = nullptr;
  int rank_ = 0;
  CollectiveShape own_;
  std::vector<Peer> peers_;  // by rank; this one's stays empty
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_SHAPE_EXCHANGE_H_

#include "runtime/nccl/nccl_peers.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/codec.h"
#include "runtime/nccl/nccl_api.h"

namespace trainctl {
namespace {

template <typename Archive, typename Peer>
void Visit(Archive& archive, Peer& peer) {
  archive.Field(peer.version);
  archive.Field(peer.node);
  archive.Field(peer.pci);
  archive.Field(peer.id);
  archive.Field(peer.error);
}

}  // namespace

std::string EncodePeer(const NcclPeer& peer) {
  Writer writer;
  Visit(writer, peer);
  return writer.Take();
}

absl::StatusOr<std::vector<NcclPeer>> DecodePeers(const std::vector<std::string>& texts) {
  std::vector<NcclPeer> peers(texts.size());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    Reader reader(texts[rank]);
    Visit(reader, peers[rank]);
    if (!reader.AtEnd()) {
      return absl::InvalidArgumentError(
          absl::StrCat("connect the GPUs: rank ", rank, " published something unreadable"));
    }
  }
  return peers;
}

absl::Status CheckPeers(const std::vector<NcclPeer>& peers) {
  if (!peers[0].error.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("connect the GPUs: rank 0 on ", peers[0].node, ": ", peers[0].error));
  }
  std::map<std::pair<std::string, std::string>, size_t> ranks_of_gpus;
  for (size_t rank = 0; rank < peers.size(); ++rank) {
    const NcclPeer& peer = peers[rank];
    if (peer.version != peers[0].version) {
      return absl::FailedPreconditionError(absl::StrCat(
          "connect the GPUs: different versions of NCCL: ", NcclVersionText(peers[0].version),
          " at rank 0 on ", peers[0].node, ", ", NcclVersionText(peer.version), " at rank ", rank,
          " on ", peer.node, "; install the same on every node"));
    }
    const auto [other, alone] = ranks_of_gpus.try_emplace({peer.node, peer.pci}, rank);
    if (!alone) {
      return absl::FailedPreconditionError(
          absl::StrCat("connect the GPUs: ranks ", other->second, " and ", rank,
                       " are both on the GPU ", peer.pci, " of ", peer.node,
                       ", which NCCL does not allow; start no more workers than there are GPUs"));
    }
  }
  return absl::OkStatus();
}

}  // namespace trainctl

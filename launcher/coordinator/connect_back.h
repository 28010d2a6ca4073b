// Whether the other nodes of an epoch can reach the node of rank 0, and at which of its addresses.
// Pure. Several nodes are tried for rank 0, one after the other.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_CONNECT_BACK_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_CONNECT_BACK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/action.h"
#include "launcher/coordinator/event.h"
#include "runtime/base/time.h"

namespace trainctl {

class ConnectBack {
 public:
  struct Peer {
    std::string name;
    std::vector<NodeAddress> addresses;
    int port = 0;  // where something is bound that is known to be there
    std::string machine;
  };
  // `peers` in the order of their ranks, two at least. Probes are numbered from `first_probe` on.
  ConnectBack(std::vector<Peer> peers, uint64_t first_probe);

  // Asks all others about the next candidate. Empty: there is none left.
  std::vector<ProbeAddress> AskNext(Instant now);
  void Take(const AddressesReached& answer);  // an answer to nothing that was asked is ignored
  bool Complete(Instant now) const;           // all have answered, or had the time to

  struct Outcome {
    size_t candidate = 0;                    // index of the best candidate for rank 0
    std::string address;                     // the address of it that most others reach
    std::vector<std::string> unreached;      // those who do not; none: the meeting place is found
    std::map<std::string, std::string> own;  // of the others: their own address, where known
    std::string trouble;                     // who cannot reach what; empty if none
  };
  // Of the candidates asked so far. REQUIRES: Complete.
  const Outcome& Best() const { return best_; }
  const std::string& first_trouble() const { return first_trouble_; }  // of the first candidate
  // Takes the newest candidate into account. True: everybody reaches it.
  bool Judge();

  bool Has(absl::string_view name) const;
  Instant deadline() const { return deadline_; }
  uint64_t next_probe() const { return probe_ + 1; }
  std::vector<std::string> Waited() const;  // who has not answered yet, in the order of ranks
  const Peer& candidate() const { return peers_[asked_ - 1]; }

 private:
  std::string Trouble(const std::vector<std::string>& unreached) const;

  std::vector<Peer> peers_;
  std::map<std::string, size_t, std::less<>> index_;
  uint64_t probe_;
  size_t asked_ = 0;  // candidates so far
  Instant deadline_ = kNever;
  std::vector<bool> answered_;
  std::vector<std::vector<AddressReached>> reached_;
  size_t waiting_ = 0;
  Outcome best_;
  std::string first_trouble_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_CONNECT_BACK_H_

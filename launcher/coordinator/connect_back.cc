#include "launcher/coordinator/connect_back.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/coordinator/rank_plan.h"
#include "runtime/base/check.h"

namespace trainctl {
namespace {

constexpr size_t kMostCandidates = 3;
constexpr Duration kPatience = seconds(5);

std::string Place(const NodeAddress& address) {
  if (address.interface.empty()) return address.address;
  return absl::StrCat(address.address, " (", address.interface, ")");
}

const AddressReached* Find(const std::vector<AddressReached>& reached, const std::string& address) {
  const auto found = std::find_if(reached.begin(), reached.end(), [&](const AddressReached& one) {
    return one.address == address;
  });
  return found == reached.end() ? nullptr : &*found;
}

}  // namespace

ConnectBack::ConnectBack(std::vector<Peer> peers, uint64_t first_probe)
    : peers_(std::move(peers)), probe_(first_probe - 1) {
  CHECK(peers_.size() >= 2);
  for (size_t i = 0; i < peers_.size(); ++i) index_[peers_[i].name] = i;
}

std::vector<ProbeAddress> ConnectBack::AskNext(Instant now) {
  std::vector<ProbeAddress> asks;
  if (asked_ == std::min(kMostCandidates, peers_.size())) return asks;
  ++asked_;
  ++probe_;
  deadline_ = now + kPatience;
  answered_.assign(peers_.size(), false);
  reached_.assign(peers_.size(), {});
  waiting_ = peers_.size() - 1;
  std::vector<ProbeAddress::Target> targets;
  for (const NodeAddress& address : candidate().addresses) {
    targets.push_back({address.address, candidate().port});
  }
  for (const Peer& peer : peers_) {
    if (&peer != &candidate()) {
      asks.push_back({peer.name, probe_, targets, kPatience, candidate().machine});
    }
  }
  return asks;
}

void ConnectBack::Take(const AddressesReached& answer) {
  const auto found = index_.find(answer.node);
  if (answer.probe != probe_ || found == index_.end()) return;
  if (found->second == asked_ - 1 || answered_[found->second]) return;
  answered_[found->second] = true;
  reached_[found->second] = answer.reached;
  --waiting_;
}

bool ConnectBack::Complete(Instant now) const { return waiting_ == 0 || now >= deadline_; }

bool ConnectBack::Judge() {
  for (const NodeAddress& address : candidate().addresses) {
    Outcome outcome;
    outcome.candidate = asked_ - 1;
    outcome.address = address.address;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (i == outcome.candidate) continue;
      const AddressReached* reached = Find(reached_[i], address.address);
      if (!reached) {
        outcome.unreached.push_back(peers_[i].name);
      } else if (!reached->from.empty()) {
        outcome.own[peers_[i].name] = reached->from;
      }
    }
    const bool first = best_.address.empty();
    if (!first && outcome.unreached.size() >= best_.unreached.size()) continue;
    if (!outcome.unreached.empty()) outcome.trouble = Trouble(outcome.unreached);
    best_ = std::move(outcome);
    if (best_.unreached.empty()) return true;
  }
  if (asked_ == 1) first_trouble_ = best_.trouble;
  return false;
}

std::string ConnectBack::Trouble(const std::vector<std::string>& unreached) const {
  const bool silent = std::any_of(unreached.begin(), unreached.end(),
                                  [&](const auto& name) { return !answered_[index_.at(name)]; });
  return absl::StrCat(
      NameList(unreached), silent ? " did not say that it reaches " : " cannot reach ",
      candidate().name, " at ",
      absl::StrJoin(candidate().addresses, " or ",
                    [](std::string* out, const NodeAddress& a) { *out += Place(a); }),
      ", port ", candidate().port);
}

bool ConnectBack::Has(absl::string_view name) const { return index_.contains(name); }

std::vector<std::string> ConnectBack::Waited() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (i != asked_ - 1 && !answered_[i]) names.push_back(peers_[i].name);
  }
  return names;
}

}  // namespace trainctl

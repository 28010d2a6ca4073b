#include "launcher/watchers.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace trainctl {

void Watchers::Add(WatchFeed* feed, const v1::WatchRequest& request) {
  const int id = next_id_++;
  feeds_[id] = {feed, request.owner(), true};
  feed->on_written = [this, id] { Written(id); };
  feed->on_cancel = [this, id] { Cancelled(id); };
  feed->on_closed = [this, id] {
    feeds_.erase(id);
    if (feeds_.empty() && on_empty_) std::exchange(on_empty_, nullptr)();
  };
  v1::JobUpdate first;
  *first.mutable_state() = callbacks_.state();
  Send(id, std::move(first));
  if (request.owner()) {
    owner_came_ = true;
    for (v1::JobUpdate& update : std::exchange(early_, {})) Send(id, std::move(update));
  }
  if (last_.has_value()) return Send(id, *last_);
  if (request.output()) {
    std::map<LogKey, uint64_t> seen;
    for (const v1::OutputFrom& from : request.seen()) {
      seen[{Epoch(from.epoch()), from.rank(), static_cast<int>(from.stream())}] = from.offset();
    }
    Ask(flow_.AddWatcher(id, seen));
  }
  CountOwners();
}

void Watchers::CountOwners() {
  const auto owners = std::count_if(feeds_.begin(), feeds_.end(), [](const auto& entry) {
    return entry.second.owner && entry.second.open;
  });
  if (owners == owners_) return;
  owners_ = static_cast<int>(owners);
  callbacks_.on_owners(owners_);
}

void Watchers::Cancelled(int id) {
  flow_.RemoveWatcher(id);
  feeds_[id].open = false;
  CountOwners();
  callbacks_.on_gone();
}

void Watchers::Send(int id, v1::JobUpdate update) {
  Watcher& watcher = feeds_[id];
  if (!watcher.open) return;
  watcher.feed->Send(std::move(update));
  const size_t queued = watcher.feed->queued_bytes();
  if (queued > kMaxQueued) {
    flow_.RemoveWatcher(id);
    watcher.open = false;
    watcher.feed->Finish(absl::ResourceExhaustedError("this front end reads too slowly"));
    return CountOwners();
  }
  if (queued > kRoomBytes) flow_.SetRoom(id, false);
}

void Watchers::Written(int id) {
  const Watcher& watcher = feeds_[id];
  if (watcher.open && watcher.feed->queued_bytes() <= kRoomBytes / 2) {
    Ask(flow_.SetRoom(id, true));
  }
}

void Watchers::Tell(const v1::JobUpdate& update) {
  if (!owner_came_) {
    early_.push_back(update);
    if (early_.size() > kMaxEarly) early_.pop_front();
  }
  // Send may call back into the owner, but never adds or erases a feed.
  for (const auto& [id, watcher] : feeds_) Send(id, update);
}

void Watchers::TellIfPrompt(const v1::JobUpdate& update) {
  for (const auto& [id, watcher] : feeds_) {
    if (watcher.feed->queued_bytes() <= kRoomBytes) Send(id, update);
  }
}

void Watchers::OpenEpoch(Epoch epoch, const std::vector<RankPlace>& ranks) {
  Ask(flow_.OpenEpoch(epoch, ranks));
}

void Watchers::NodeHere(const std::string& node, bool here) { Ask(flow_.NodeHere(node, here)); }

// One update to each watcher, in which the last one of an output gets the bytes themselves.
void Watchers::Output(const std::string& node, v1::OutputBatch batch) {
  std::map<int, v1::JobUpdate> updates;
  std::set<LogKey> logs;
  for (v1::Output& output : *batch.mutable_outputs()) {
    const LogKey key{Epoch(output.epoch()), output.rank(), static_cast<int>(output.stream())};
    const std::vector<OutputFlow::Piece> pieces =
        flow_.Take(node, key, output.offset(), output.data(), output.skipped());
    for (const OutputFlow::Piece& piece : pieces) {
      v1::Output* out = updates[piece.watcher].mutable_output()->add_outputs();
      out->set_epoch(output.epoch());
      out->set_rank(output.rank());
      out->set_stream(output.stream());
      out->set_offset(piece.offset);
      out->set_skipped(piece.skipped);
      if (&piece == &pieces.back() && piece.data.size() == output.data().size()) {
        out->mutable_data()->swap(*output.mutable_data());
      } else {
        out->set_data(piece.data.data(), piece.data.size());
      }
    }
    logs.insert(key);
  }
  for (auto& [id, update] : updates) Send(id, std::move(update));
  std::vector<OutputFlow::Ask> asks;
  for (const LogKey& key : logs) flow_.After(key, &asks);
  Ask(asks);
}

void Watchers::Ask(const std::vector<OutputFlow::Ask>& asks) {
  if (!asks.empty()) callbacks_.on_asks(asks);
}

void Watchers::SayLast(v1::JobUpdate last, std::function<void()> on_empty) {
  last_ = std::move(last);
  on_empty_ = std::move(on_empty);
  if (feeds_.empty()) return std::exchange(on_empty_, nullptr)();
  for (const auto& [id, watcher] : feeds_) Send(id, *last_);
}

bool Watchers::OwnerIsBehind() const {
  return std::any_of(feeds_.begin(), feeds_.end(), [this](const auto& entry) {
    const Watcher& watcher = entry.second;
    return watcher.owner && watcher.open && (watcher.feed->queued_bytes() > 0 || last_.has_value());
  });
}

}  // namespace trainctl

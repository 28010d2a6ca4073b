#include "launcher/output_flow.h"

#include <algorithm>

namespace trainctl {
namespace {

// All requests together bound what may be on its way at once, however many logs there are.
constexpr uint64_t kAllWindows = 8 << 20;
constexpr uint64_t kMinWindow = 4 << 10;
constexpr uint64_t kMaxWindow = 256 << 10;

}  // namespace

uint64_t OutputFlow::Window() const {
  return std::clamp<uint64_t>(kAllWindows / std::max<size_t>(logs_.size(), 1), kMinWindow,
                              kMaxWindow);
}

bool OutputFlow::Complete(const Log& log) {
  if (log.cursors.empty()) return true;
  if (!log.end.has_value()) return false;
  return std::all_of(log.cursors.begin(), log.cursors.end(),
                     [&log](const auto& cursor) { return cursor.second >= *log.end; });
}

std::vector<OutputFlow::Ask> OutputFlow::OpenEpoch(Epoch epoch,
                                                   const std::vector<RankPlace>& ranks) {
  current_ = std::max(current_, epoch);
  std::erase_if(logs_, [this](const auto& entry) {
    return watched_ && entry.first.epoch < current_ && Complete(entry.second);
  });
  for (const RankPlace& place : ranks) {
    for (const int stream : {1, 2}) {
      Log& log = logs_[{epoch, place.rank, stream}];
      log.node = place.node;
      for (const auto& [watcher, room] : room_) log.cursors.emplace(watcher, 0);
    }
  }
  return AskForAll();
}

std::vector<OutputFlow::Ask> OutputFlow::NodeHere(const std::string& node, bool here) {
  for (auto& [key, log] : logs_) {
    if (log.node == node) log.asked = false;
  }
  if (here) {
    nodes_here_.insert(node);
  } else {
    nodes_here_.erase(node);
  }
  return AskForAll();
}

std::vector<OutputFlow::Ask> OutputFlow::AddWatcher(int watcher,
                                                    const std::map<LogKey, uint64_t>& seen) {
  room_[watcher] = true;
  for (auto& [key, log] : logs_) {
    const auto from = seen.find(key);
    const bool first = !watched_ && seen.empty();
    const bool wanted = first || key.epoch == current_ || from != seen.end();
    if (wanted) log.cursors[watcher] = from == seen.end() ? 0 : from->second;
  }
  watched_ = true;
  return AskForAll();
}

void OutputFlow::RemoveWatcher(int watcher) {
  room_.erase(watcher);
  for (auto& [key, log] : logs_) log.cursors.erase(watcher);
}

std::vector<OutputFlow::Ask> OutputFlow::SetRoom(int watcher, bool room) {
  const auto found = room_.find(watcher);
  if (found == room_.end() || found->second == room) return {};
  found->second = room;
  return room ? AskForAll() : std::vector<Ask>();
}

std::vector<OutputFlow::Piece> OutputFlow::Take(const std::string& node, const LogKey& key,
                                                uint64_t offset, absl::string_view data,
                                                uint64_t skipped) {
  std::vector<Piece> pieces;
  const auto found = logs_.find(key);
  if (found == logs_.end() || found->second.node != node) return pieces;
  Log& log = found->second;
  const uint64_t end = offset + data.size();
  const uint64_t begin = offset - std::min(offset, skipped);
  const bool ended = begin == end;
  if (ended) log.end = offset;
  for (auto& [watcher, cursor] : log.cursors) {
    if (cursor < begin || cursor >= end) continue;
    const uint64_t from = std::max(cursor, offset);
    pieces.push_back({watcher, key, from, from - cursor, data.substr(from - offset)});
    cursor = end;
  }
  // Bytes of an earlier request that was replaced leave the present one open.
  if (begin == log.asked_from) log.asked_from = end;
  if (ended || log.asked_from >= log.asked_limit) log.asked = false;
  return pieces;
}

void OutputFlow::After(const LogKey& key, std::vector<Ask>* asks) {
  if (const auto found = logs_.find(key); found != logs_.end()) AskFor(key, found->second, asks);
}

void OutputFlow::AskFor(const LogKey& key, Log& log, std::vector<Ask>* asks) const {
  if (nodes_here_.count(log.node) == 0) return;
  std::optional<uint64_t> next;
  for (const auto& [watcher, cursor] : log.cursors) {
    if (!room_.at(watcher) || (log.end.has_value() && cursor >= *log.end)) continue;
    next = std::min(next.value_or(cursor), cursor);
  }
  if (!next.has_value()) return;
  // A watcher behind the open request is served first; the others wait for no more than a window.
  if (!log.asked || *next < log.asked_from) {
    log.asked = true;
    log.asked_from = *next;
    log.asked_limit = *next + Window();
    asks->push_back({log.node, key, log.asked_from, log.asked_limit});
    return;
  }
  // What has come of it is asked for on top, so that the log never stands still for a way there and
  // back.
  const uint64_t limit = log.asked_from + Window();
  if (*next >= log.asked_limit || log.asked_limit + Window() / 2 > limit) return;
  asks->push_back({log.node, key, log.asked_limit, limit});
  log.asked_limit = limit;
}

std::vector<OutputFlow::Ask> OutputFlow::AskForAll() {
  std::vector<Ask> asks;
  for (auto& [key, log] : logs_) AskFor(key, log, &asks);
  return asks;
}

bool OutputFlow::Drained() const {
  return std::all_of(logs_.begin(), logs_.end(), [this](const auto& entry) {
    return nodes_here_.count(entry.second.node) == 0 || Complete(entry.second);
  });
}

}  // namespace trainctl

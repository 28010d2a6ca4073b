#include "runtime/supervisor/records.h"

#include <algorithm>

namespace trainctl {
namespace {

size_t Bytes(const frame::Exchange& exchange) {
  return sizeof(exchange) + exchange.name.size() + exchange.value.size();
}

template <typename T>
void KeepNewest(std::deque<T>& queue, const T& value, size_t limit) {
  queue.push_back(value);
  if (queue.size() > limit) queue.pop_front();
}

}  // namespace

void Records::Keep(const frame::Exchange& exchange) {
  const auto same = std::find_if(exchanges_.begin(), exchanges_.end(), [&](const Published& p) {
    return p.exchange.rank == exchange.rank && p.exchange.name == exchange.name;
  });
  if (same != exchanges_.end()) {
    exchange_bytes_ -= Bytes(same->exchange);
    exchanges_.erase(same);
  }
  exchanges_.push_back({exchange, true});
  exchange_bytes_ += Bytes(exchange);
  // Answered ones go first; only a store that restarts would have wanted them again.
  while (exchange_bytes_ > kExchangeBytes && exchanges_.size() > 1) {
    auto victim = std::find_if(exchanges_.begin(), exchanges_.end(),
                               [](const Published& p) { return !p.waiting; });
    if (victim == exchanges_.end()) victim = exchanges_.begin();
    exchange_bytes_ -= Bytes(victim->exchange);
    exchanges_.erase(victim);
  }
}

void Records::Keep(const frame::ShardPrepared& prepared) {
  std::erase_if(shards_, [&](const frame::ShardPrepared& s) {
    return s.step == prepared.step && s.shard.rank == prepared.shard.rank;
  });
  KeepNewest(shards_, prepared, kShards);
}

void Records::Keep(const frame::CheckpointPublished& published) {
  if (published_.has_value() && published_->step > published.step) return;
  published_ = published;
  std::erase_if(shards_, [&](const frame::ShardPrepared& s) { return s.step <= published.step; });
}

void Records::Keep(const frame::CheckpointRejected& rejected) {
  KeepNewest(rejected_, rejected, kRejections);
}

void Records::Keep(const frame::Metric& metric) {
  const std::pair<int32_t, std::string> key(metric.rank, metric.name);
  if (metrics_.size() >= kMetrics && metrics_.count(key) == 0) return;
  metrics_[key] = metric;
}

void Records::KeepUnsent(const frame::Note& note) { KeepNewest(notes_, note, kNotes); }

std::vector<int32_t> Records::TakeWaiting(absl::string_view name) {
  std::vector<int32_t> ranks;
  for (Published& published : exchanges_) {
    if (!published.waiting || published.exchange.name != name) continue;
    published.waiting = false;
    ranks.push_back(published.exchange.rank);
  }
  return ranks;
}

std::vector<frame::Exchange> Records::Exchanges() const {
  std::vector<frame::Exchange> all;
  for (const Published& published : exchanges_) all.push_back(published.exchange);
  return all;
}

std::vector<frame::Frame> Records::TakeForNewDaemon() {
  std::vector<frame::Frame> frames;
  frames.insert(frames.end(), rejected_.begin(), rejected_.end());
  if (published_.has_value()) frames.push_back(*published_);
  frames.insert(frames.end(), shards_.begin(), shards_.end());
  for (const auto& [key, metric] : metrics_) frames.push_back(metric);
  frames.insert(frames.end(), notes_.begin(), notes_.end());
  notes_.clear();
  return frames;
}

}  // namespace trainctl

#include "runtime/supervisor/forwarder.h"

#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"

namespace trainctl {
namespace {

constexpr size_t kFrameBytes = 32 * 1024;
constexpr size_t kEarlyRequests = 4096;
constexpr size_t kOldStreams = 256;

}  // namespace

std::string LogFolder(const std::string& log_folder, int64_t epoch, int32_t rank) {
  return absl::StrCat(log_folder, "/", epoch, "/", rank);
}

std::string LogPath(const std::string& log_folder, int64_t epoch, int32_t rank, uint8_t stream) {
  return JoinPath(LogFolder(log_folder, epoch, rank),
                  stream == kStdout ? "stdout.log" : "stderr.log");
}

void Forwarder::BeginEpoch(int64_t epoch, std::string log_folder, uint64_t log_quota,
                           const std::vector<int32_t>& ranks) {
  const bool first = epoch_ < 0;
  epoch_ = epoch;
  log_folder_ = std::move(log_folder);
  if (first && log_quota > 0) CountEarlierLogs(ranks);
  quota_.Begin(log_quota, 2 * ranks.size());
  std::erase_if(streams_, [](const auto& entry) { return !entry.second->HasNext(); });
}

// Of an earlier shim, whose ranks were most likely the same.
void Forwarder::CountEarlierLogs(const std::vector<int32_t>& ranks) {
  std::set<int64_t> epochs;
  for (const std::string& name : FolderEntries(log_folder_)) {
    int64_t epoch = 0;
    if (absl::SimpleAtoi(name, &epoch) && epoch >= 0 && epoch < epoch_) epochs.insert(epoch);
  }
  for (const int64_t epoch : epochs) {
    for (const int32_t rank : ranks) {
      for (const uint8_t stream : {kStdout, kStderr}) {
        quota_.AddComplete(LogPath(log_folder_, epoch, rank, stream));
      }
    }
  }
}

OutputStream* Forwarder::Add(std::unique_ptr<OutputStream> stream) {
  const Key key = KeyOf(*stream);
  return (streams_[key] = std::move(stream)).get();
}

Forwarder::Key Forwarder::KeyOf(const OutputStream& stream) {
  return {stream.epoch(), stream.rank(), stream.stream()};
}

void Forwarder::Moved(const OutputStream& stream) {
  if (!stream.HasNext()) return;
  const Instant due = stream.NextDue(kFrameBytes);
  if (due > Now()) {
    waiting_.emplace(due, KeyOf(stream));
  } else {
    ready_.insert(KeyOf(stream));
  }
}

void Forwarder::EndStart() {
  std::map<Key, frame::OutputFrom> early = std::exchange(early_, {});
  for (const auto& [key, from] : early) Request(from);
}

void Forwarder::Request(const frame::OutputFrom& from) {
  const Key key{from.epoch, from.rank, from.stream};
  if (from.epoch > epoch_) {
    if (early_.size() < kEarlyRequests) early_[key] = from;
    return;
  }
  if (streams_.count(key) == 0) {
    if (streams_.size() >= kOldStreams) {
      std::erase_if(streams_, [this](const auto& entry) {
        return entry.second->epoch() != epoch_ && !entry.second->HasNext();
      });
    }
    streams_[key] =
        std::make_unique<OutputStream>(from.epoch, from.rank, from.stream,
                                       LogPath(log_folder_, from.epoch, from.rank, from.stream));
  }
  OutputStream& stream = *streams_[key];
  stream.Request(from.offset, from.limit);
  Moved(stream);
}

void Forwarder::ForgetRequests() {
  early_.clear();
  ready_.clear();
  waiting_.clear();
  for (auto& [key, stream] : streams_) stream->Request(0, 0);
}

bool Forwarder::Pump(const std::function<bool()>& wants_more,
                     const std::function<void(const frame::Output&)>& give) {
  const Instant now = Now();
  while (!waiting_.empty() && waiting_.begin()->first <= now) {
    ready_.insert(waiting_.extract(waiting_.begin()).value().second);
  }
  while (!ready_.empty()) {
    auto it = ready_.upper_bound(turn_);
    if (it == ready_.end()) it = ready_.begin();
    const auto found = streams_.find(*it);
    if (found == streams_.end() || !found->second->HasNext()) {
      ready_.erase(it);
      continue;
    }
    if (!wants_more()) return false;
    turn_ = *it;
    ready_.erase(it);
    give(found->second->Next(kFrameBytes));
    Moved(*found->second);
  }
  return true;
}

}  // namespace trainctl

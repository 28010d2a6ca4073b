#include "runtime/supervisor/forwarder.h"

#include <utility>

#include "absl/strings/str_cat.h"
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

void Forwarder::BeginEpoch(int64_t epoch, std::string log_folder) {
  epoch_ = epoch;
  log_folder_ = std::move(log_folder);
  std::erase_if(streams_, [](const auto& entry) { return !entry.second->HasNext(); });
}

OutputStream* Forwarder::Add(std::unique_ptr<OutputStream> stream) {
  const Key key{stream->epoch(), stream->rank(), stream->stream()};
  return (streams_[key] = std::move(stream)).get();
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
  streams_[key]->Request(from.offset, from.limit);
}

void Forwarder::ForgetRequests() {
  early_.clear();
  for (auto& [key, stream] : streams_) stream->Request(0, 0);
}

bool Forwarder::Pump(const std::function<bool()>& wants_more,
                     const std::function<void(const frame::Output&)>& give) {
  size_t idle = 0;
  auto it = streams_.upper_bound(turn_);
  while (idle < streams_.size()) {
    if (it == streams_.end()) it = streams_.begin();
    OutputStream& stream = *it->second;
    if (stream.HasNext()) {
      if (!wants_more()) return false;
      give(stream.Next(kFrameBytes));
      turn_ = it->first;
      idle = 0;
    } else {
      ++idle;
    }
    ++it;
  }
  return true;
}

}  // namespace trainctl

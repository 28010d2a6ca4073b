#include "runtime/supervisor/log_quota.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/log_pieces.h"

namespace trainctl {
namespace {

// Of one log there must be room for the piece that is being written and the one before. Both may be
// twice as long as they should be, because they end with a line.
constexpr uint64_t kPiecesOfALog = 4;
constexpr uint64_t kPiecesBeingWritten = 2;

uint64_t SizeOf(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 ? static_cast<uint64_t>(found.st_size) : 0;
}

}  // namespace

void LogQuota::Begin(uint64_t bytes, size_t logs) {
  for (const auto& [log_path, piece] : std::exchange(newest_, {})) AddComplete(log_path);
  const uint64_t count = std::max<uint64_t>(logs, 1);
  quota_ = bytes;
  piece_bytes_ =
      bytes == 0 ? 0 : std::clamp(bytes / (kPiecesOfALog * count), kShortestPiece, kLongestPiece);
  reserved_ = kPiecesBeingWritten * piece_bytes_ * count;
  DeleteOldest();
}

void LogQuota::AddComplete(const std::string& log_path) {
  Deletable whole{log_path, {log_path, LogTimesPath(log_path)}, 0};
  for (const LogPiece& piece : FindLogPieces(log_path)) whole.files.push_back(piece.path);
  std::erase_if(pieces_, [&](const Deletable& piece) {
    if (piece.log_path == log_path) kept_ -= piece.bytes;
    return piece.log_path == log_path;
  });
  for (const std::string& file : whole.files) whole.bytes += SizeOf(file);
  kept_ += whole.bytes;
  pieces_.push_back(std::move(whole));
}

void LogQuota::AddWritten(const std::string& log_path) { newest_[log_path]; }

void LogQuota::AddPiece(const std::string& log_path, uint64_t end, uint64_t bytes) {
  const std::string path = LogPiecePath(log_path, end);
  pieces_.push_back({log_path, {path}, bytes});
  kept_ += bytes;
  newest_[log_path] = path;
  DeleteOldest();
}

void LogQuota::DeleteOldest() {
  if (quota_ == 0) return;
  auto it = pieces_.begin();
  while (it != pieces_.end() && kept_ + reserved_ > quota_) {
    const auto written = newest_.find(it->log_path);
    if (written != newest_.end() && written->second == it->files.front()) {
      ++it;
      continue;
    }
    for (const std::string& file : it->files) ::unlink(file.c_str());
    LogDebug("deleted ", it->files.front(), ": the logs are longer than their quota");
    kept_ -= it->bytes;
    it = pieces_.erase(it);
  }
}

}  // namespace trainctl

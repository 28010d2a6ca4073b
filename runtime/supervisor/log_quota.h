// How much the logs of a job may take on this node. Full pieces of logs (runtime/base/log_pieces.h)
// are deleted oldest first; of a log that is being written the newest full piece stays, because it
// says where the log goes on.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_LOG_QUOTA_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_LOG_QUOTA_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace trainctl {

// Lives on the loop's thread.
class LogQuota {
 public:
  // From now on `logs` logs are written and all take `bytes` at most; 0: no limit. Those of before
  // are complete: they may be deleted as a whole.
  void Begin(uint64_t bytes, size_t logs);
  // How long a piece is; 0: logs are not divided. Between two calls of Begin it stays the same.
  uint64_t piece_bytes() const { return piece_bytes_; }

  // A log that an earlier shim left complete, or that is being written from now on.
  void AddComplete(const std::string& log_path);
  void AddWritten(const std::string& log_path);
  // A piece of a log that is being written is full. Deletes what is too much.
  void AddPiece(const std::string& log_path, uint64_t end, uint64_t bytes);

  // Shorter pieces would cost more than they are worth, even if all together exceed the quota.
  static constexpr uint64_t kShortestPiece = uint64_t{64} << 10;
  static constexpr uint64_t kLongestPiece = uint64_t{64} << 20;

 private:
  struct Deletable {
    std::string log_path;
    std::vector<std::string> files;
    uint64_t bytes = 0;
  };
  void DeleteOldest();

  uint64_t quota_ = 0;
  uint64_t reserved_ = 0;  // for what is being written
  uint64_t piece_bytes_ = 0;
  uint64_t kept_ = 0;                          // bytes of pieces_
  std::deque<Deletable> pieces_;               // the oldest first
  std::map<std::string, std::string> newest_;  // by log that is being written, its newest piece
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_LOG_QUOTA_H_

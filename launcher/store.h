// The rendezvous store of one job: every rank of an epoch publishes a value under a name, and when
// the last has, every node gets all values. It may die at any time: nodes publish again.
#ifndef TRAINCTL_LAUNCHER_STORE_H_
#define TRAINCTL_LAUNCHER_STORE_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/time.h"

namespace trainctl {

// PURE. Not thread-safe.
class Store {
 public:
  struct Publication {
    Epoch epoch;
    int rank = 0;
    std::string name;
    std::string value;
    Duration timeout{0};  // from now, for the others to publish too
  };
  struct Answer {
    std::string node;
    std::string name;
    std::vector<std::string> values;  // by rank
    std::string error;                // names the ranks that are missing
  };
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  // Drops what other epochs published.
  void Open(Epoch epoch, std::vector<std::string> node_of_rank);
  Epoch epoch() const { return epoch_; }

  // One answer per node and name. A name that is answered already is answered to `node` again.
  // Publications of another epoch, or of ranks that `node` does not have, are ignored.
  std::vector<Answer> Publish(Instant now, const std::string& node,
                              const std::vector<Publication>& publications);
  // Answers the names whose time is over with the ranks that are missing.
  std::vector<Answer> Expire(Instant now);
  Instant next_deadline() const;
  // When the newest name became complete; kNever: none has in this epoch.
  Instant last_completed() const { return last_completed_; }

 private:
  struct Name {
    std::vector<std::optional<std::string>> values;  // by rank
    size_t present = 0;
    Instant deadline = kNever;
    Duration timeout{0};
    bool answered = false;
    std::string error;
  };
  Answer MakeAnswer(const std::string& node, const std::string& key, const Name& name) const;
  void AnswerAll(const std::string& key, const Name& name, std::vector<Answer>* answers) const;
  std::string Missing(const std::string& key, const Name& name) const;

  Epoch epoch_{-1};
  std::vector<std::string> node_of_rank_;
  std::map<std::string, Name> names_;
  size_t bytes_ = 0;
  Instant last_completed_ = kNever;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_STORE_H_

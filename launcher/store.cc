#include "launcher/store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl {
namespace {

// An error with a thousand ranks helps nobody.
constexpr size_t kMaxNamed = 16;

}  // namespace

void Store::Open(Epoch epoch, std::vector<std::string> node_of_rank) {
  epoch_ = epoch;
  node_of_rank_ = std::move(node_of_rank);
  names_.clear();
  bytes_ = 0;
  last_completed_ = kNever;
}

std::vector<Store::Answer> Store::Publish(Instant now, const std::string& node,
                                          const std::vector<Publication>& publications) {
  std::vector<Answer> answers;
  std::set<std::string> again;
  for (const Publication& publication : publications) {
    const auto rank = static_cast<size_t>(publication.rank);
    if (publication.epoch != epoch_ || publication.rank < 0 || rank >= node_of_rank_.size() ||
        node_of_rank_[rank] != node) {
      continue;
    }
    Name& name = names_[publication.name];
    if (name.answered) {
      again.insert(publication.name);
      continue;
    }
    name.values.resize(node_of_rank_.size());
    if (name.values[rank].has_value()) continue;
    bytes_ += publication.value.size() + publication.name.size();
    name.values[rank] = publication.value;
    ++name.present;
    // The first to come sets the time; later ones may only shorten it.
    if (publication.timeout > Duration(0) && now + publication.timeout < name.deadline) {
      name.deadline = now + publication.timeout;
      name.timeout = publication.timeout;
    }
    if (bytes_ > kMaxBytes) {
      name.error = absl::StrCat("the rendezvous store is full (", kMaxBytes >> 20,
                                " MiB in one epoch); publish smaller or fewer values");
    } else if (name.present < node_of_rank_.size()) {
      continue;
    } else {
      last_completed_ = now;
    }
    name.answered = true;
    AnswerAll(publication.name, name, &answers);
  }
  for (const std::string& key : again) answers.push_back(MakeAnswer(node, key, names_[key]));
  return answers;
}

std::vector<Store::Answer> Store::Expire(Instant now) {
  std::vector<Answer> answers;
  for (auto& [key, name] : names_) {
    if (name.answered || name.deadline > now) continue;
    name.answered = true;
    name.error = Missing(key, name);
    AnswerAll(key, name, &answers);
  }
  return answers;
}

Instant Store::next_deadline() const {
  Instant next = kNever;
  for (const auto& [key, name] : names_) {
    if (!name.answered) next = std::min(next, name.deadline);
  }
  return next;
}

std::string Store::Missing(const std::string& key, const Name& name) const {
  std::vector<std::string> missing;
  for (size_t rank = 0; rank < name.values.size(); ++rank) {
    if (!name.values[rank].has_value()) {
      missing.push_back(absl::StrCat("rank ", rank, " (", node_of_rank_[rank], ")"));
    }
  }
  const size_t more = missing.size() - std::min(missing.size(), kMaxNamed);
  missing.resize(missing.size() - more);
  return absl::StrCat(absl::StrJoin(missing, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "",
                      missing.size() + more == 1 ? " has" : " have", " not published ", key,
                      " after ", ToSeconds(name.timeout), " s");
}

Store::Answer Store::MakeAnswer(const std::string& node, const std::string& key,
                                const Name& name) const {
  Answer answer{node, key, {}, name.error};
  if (!name.error.empty()) return answer;
  for (const std::optional<std::string>& value : name.values) answer.values.push_back(*value);
  return answer;
}

void Store::AnswerAll(const std::string& key, const Name& name,
                      std::vector<Answer>* answers) const {
  const std::set<std::string> nodes(node_of_rank_.begin(), node_of_rank_.end());
  for (const std::string& node : nodes) answers->push_back(MakeAnswer(node, key, name));
}

}  // namespace trainctl

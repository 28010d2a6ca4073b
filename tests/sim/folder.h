// The job's checkpoint folder, which all nodes see: what is published, and what epochs prepare.
#ifndef TRAINCTL_TESTS_SIM_FOLDER_H_
#define TRAINCTL_TESTS_SIM_FOLDER_H_

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"

namespace trainctl::sim {

class Folder {
 public:
  struct Published {
    Epoch epoch;  // whose work it is
    bool damaged = false;
  };

  void Prepare(Step step, Epoch epoch) { hidden_.insert({step, epoch}); }
  void Discard(Step step, Epoch epoch) { hidden_.erase({step, epoch}); }
  // What earlier epochs left unfinished; a late writer of one of them finds nothing to publish.
  void Sweep(Epoch epoch) {
    std::erase_if(hidden_, [epoch](const auto& entry) { return entry.second < epoch; });
  }
  // The rename. False: there is nothing to publish.
  bool Publish(Step step, Epoch epoch) {
    if (hidden_.erase({step, epoch}) == 0) return false;
    published_[step] = {epoch, false};
    return true;
  }
  void Delete(Step step) { published_.erase(step); }
  void Damage(Step step) {
    if (const auto found = published_.find(step); found != published_.end()) {
      found->second.damaged = true;
    }
  }

  const std::map<Step, Published>& published() const { return published_; }
  std::vector<Step> List() const {
    std::vector<Step> steps;
    for (const auto& [step, entry] : published_) steps.push_back(step);
    return steps;
  }

 private:
  std::set<std::pair<Step, Epoch>> hidden_;
  std::map<Step, Published> published_;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_FOLDER_H_

// Tries whether addresses of another node are reached from this one.
#ifndef TRAINCTL_RUNTIME_NODE_PROBER_H_
#define TRAINCTL_RUNTIME_NODE_PROBER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "proto/job.pb.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"

namespace trainctl {

// Lives on the loop's thread. Nothing blocks: every connection of a probe is tried at once.
class Prober {
 public:
  // `on_done` gets one answer for each probe, when every target has answered or its patience is
  // over. `machine`: ours, as NodeFacts has it.
  Prober(Loop* loop, std::string machine,
         std::function<void(const v1::AddressesReached& reached)> on_done)
      : loop_(loop), machine_(std::move(machine)), on_done_(std::move(on_done)) {}
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  // A newer probe ends the one before it without an answer.
  void Begin(const v1::ProbeAddresses& probe);

 private:
  struct Attempt {
    Fd socket;
    std::string address;
  };
  void Try(const v1::ProbeAddresses::Target& target);
  void Settle(int fd);
  void Take(const Attempt& attempt, int error);
  void FinishIfDone();
  void Drop();

  Loop* loop_;
  const std::string machine_;
  std::function<void(const v1::AddressesReached& reached)> on_done_;
  std::map<int, Attempt> open_;  // by descriptor
  v1::AddressesReached reached_;
  bool running_ = false;
  Loop::TimerId timer_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_PROBER_H_

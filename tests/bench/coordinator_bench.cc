// Processor time that the pure coordinator needs for many nodes: coordinator_bench [NODES [SLOTS]].
// One life of a job: everybody joins, meets, starts, asks for leases for a minute; a worker dies,
// everything stops and starts again; every worker ends.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/coordinator.h"

namespace trainctl {
namespace {

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class Life {
 public:
  Life(int nodes, int slots) : nodes_(nodes), slots_(slots) {
    JobSpec spec;
    spec.job_id = "bench";
    spec.command = {"python3", "-u", "train.py", "--local-rank=${local_rank}"};
    for (int i = 0; i < 80; ++i) spec.env.push_back(absl::StrCat("VARIABLE_", i, "=value of it"));
    spec.min_nodes = spec.max_nodes = nodes;
    spec.workers_per_node = slots;
    spec.max_restarts = 3;
    spec.orphan_timeout = Duration(-1);
    coordinator_ = std::make_unique<Coordinator>(spec);
    Batch batch;
    coordinator_->Start(now_, 1, Term(1), &batch);
    Collect(std::move(batch));
  }

  void Run() {
    Phase("join", [&] {
      for (int i = 0; i < nodes_; ++i) Join(i);
    });
    Phase("meet", [&] { Answer(); });
    Phase("start", [&] { Started(); });
    Phase("leases of 60 s", [&] {
      for (int round = 0; round < 24; ++round) {
        now_ = now_ + milliseconds(2500);
        for (int i = 0; i < nodes_; ++i) Tell(LeaseRequested{Name(i), Incarnation(1), 1});
      }
    });
    Phase("a death", [&] {
      WorkerExit exit;
      exit.code = 1;
      Tell(WorkerExited{Name(nodes_ / 2), coordinator_->epoch(), nodes_ / 2 * slots_, exit});
    });
    Phase("all gone", [&] {
      const Epoch epoch = coordinator_->epoch();
      WorkerExit exit;
      exit.kind = WorkerExit::Kind::kSignaled;
      exit.code = 15;
      exit.by_us = true;
      for (int rank = 0; rank < nodes_ * slots_; ++rank) {
        if (rank != nodes_ / 2 * slots_) {
          Tell(WorkerExited{Name(rank / slots_), epoch, rank, exit});
        }
      }
      for (int i = 0; i < nodes_; ++i) Tell(NodeEpochGone{Name(i), epoch});
    });
    Phase("start again", [&] { Started(); });
    Phase("all done", [&] {
      const Epoch epoch = coordinator_->epoch();
      for (int rank = 0; rank < nodes_ * slots_; ++rank) {
        Tell(WorkerExited{Name(rank / slots_), epoch, rank, {}});
      }
    });
    if (coordinator_->phase() != JobPhase::kFinished) {
      std::printf("the job did not finish: %s\n", coordinator_->Explain(now_).c_str());
      std::exit(1);
    }
    std::printf("%-16s %8.3f s\n", "in all", total_);
  }

 private:
  static std::string Name(int i) { return absl::StrCat("node", i); }

  template <typename Body>
  void Phase(const char* name, Body body) {
    const double before = ProcessorSeconds();
    const int64_t events = events_;
    body();
    const double spent = ProcessorSeconds() - before;
    total_ += spent;
    std::printf("%-16s %8.3f s %8ld events   %s\n", name, spent,
                static_cast<long>(events_ - events), JobPhaseName(coordinator_->phase()));
  }

  void Tell(const Event& event) {
    ++events_;
    Batch batch;
    coordinator_->Step(now_, 1, event, &batch);
    if (coordinator_->next_deadline() <= now_) std::abort();
    Collect(std::move(batch));
  }

  void Collect(Batch batch) {
    for (Action& action : batch.perform) {
      if (auto* ask = std::get_if<ProbeAddress>(&action)) asks_.push_back(std::move(*ask));
      if (auto* start = std::get_if<StartWorkers>(&action)) starts_.push_back(std::move(*start));
    }
  }

  void Join(int i) {
    NodeJoined joined;
    joined.node = Name(i);
    joined.incarnation = Incarnation(1);
    joined.machine = Name(i);
    joined.addresses = {{"eth0", absl::StrCat("10.0.", i / 256, ".", i % 256)}};
    joined.topology = absl::StrCat("s0.s", i / 32, ".", Name(i));
    joined.slots = slots_;
    joined.reserved_port = 29500;
    Tell(joined);
  }

  void Answer() {
    for (const ProbeAddress& ask : std::exchange(asks_, {})) {
      AddressesReached reached{ask.node, ask.probe, {}};
      for (const auto& target : ask.targets)
        reached.reached.push_back({target.address, "10.1.1.1"});
      Tell(reached);
    }
  }

  void Started() {
    for (const StartWorkers& start : std::exchange(starts_, {})) {
      WorkersStarted started{start.node, start.epoch, 29501, {}};
      for (const WorkerLaunch& launch : start.workers) {
        started.workers.push_back({launch.rank, launch.local_rank, 1, true, {}});
      }
      Tell(started);
    }
  }

  const int nodes_;
  const int slots_;
  std::unique_ptr<Coordinator> coordinator_;
  Instant now_{1'000'000'000};
  std::vector<ProbeAddress> asks_;
  std::vector<StartWorkers> starts_;
  int64_t events_ = 0;
  double total_ = 0;
};

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 4096;
  const int slots = argc > 2 ? std::atoi(argv[2]) : 8;
  if (nodes < 2 || slots < 1) {
    std::fprintf(stderr, "usage: coordinator_bench [NODES [SLOTS]]\n");
    return 2;
  }
  std::printf("%d nodes with %d slots\n", nodes, slots);
  trainctl::Life(nodes, slots).Run();
  return 0;
}

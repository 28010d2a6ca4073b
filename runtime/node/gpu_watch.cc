#include "runtime/node/gpu_watch.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

namespace trainctl {
namespace {

constexpr Duration kMemoryPatience = seconds(30);
constexpr Duration kWordEvery = seconds(5);
constexpr absl::Duration kMemoryPause = absl::Milliseconds(20);
constexpr Duration kListenFor = milliseconds(500);
// The driver's own needs change a little with use.
constexpr int64_t kMemorySlackMib = 256;

}  // namespace

FreeVerdict JudgeFree(const std::string& job_id, const std::string& device, const GpuUse& use,
                      int64_t baseline_mib) {
  if (!use.problem.empty()) {
    return {true, absl::StrCat(device, " cannot be asked: ", use.problem)};
  }
  std::vector<std::string> ours;
  bool unseen = use.processes.empty();
  for (const GpuProcess& process : use.processes) {
    if (process.job == job_id) ours.push_back(DescribeProcess(process));
    unseen = unseen || process.name.empty();
  }
  if (!ours.empty()) {
    return {false, absl::StrCat(device, " is still in use by ", absl::StrJoin(ours, ", "))};
  }
  if (!unseen) return {true, absl::StrCat(device, ": the driver shows no process of the job")};
  if (use.used_mib < 0 || baseline_mib < 0) {
    return {true, absl::StrCat(device, ": the driver shows neither processes nor memory")};
  }
  const bool back = use.used_mib <= baseline_mib + kMemorySlackMib;
  return {back, absl::StrCat(device, ": ", use.used_mib, " MiB are in use, ", baseline_mib,
                             " before the job",
                             use.processes.empty()
                                 ? " (by memory alone: the driver shows no process)"
                                 : " (by memory: the driver shows processes that are not to be "
                                   "seen from here)")};
}

struct GpuWatch::Shared {
  Loop* loop = nullptr;
  std::string job_id;
  std::vector<GpuWorker> workers;
  Callbacks callbacks;  // called on the loop, and only while !over
  std::atomic<bool> end{false};
  // Of the loop's thread.
  bool over = false;
  bool measuring = false;       // what is in use before the first worker
  std::function<void()> first;  // waits for that
  GpuBaseline baseline;

  void Measured(const std::vector<GpuUse>& uses) {
    measuring = false;
    for (const GpuUse& use : uses) baseline.push_back(use.used_mib);
    if (first && !over) std::exchange(first, nullptr)();
  }
};

namespace {

// Runs on a thread of its own. What it calls back, it posts.
template <typename Body>
void StartThread(const char* name, Body body) {
  std::thread([name, body = std::move(body)]() mutable {
    ::pthread_setname_np(::pthread_self(), name);
    body();
  }).detach();
}

std::vector<GpuUse> UseOf(const absl::StatusOr<NvmlSession>& session,
                          const std::vector<GpuWorker>& workers) {
  std::vector<GpuUse> uses(workers.size());
  for (size_t i = 0; i < workers.size(); ++i) {
    if (session.ok()) {
      uses[i] = session->Use(workers[i].uuid);
    } else {
      uses[i].problem = std::string(session.status().message());
    }
  }
  return uses;
}

// What is not free, first of all; else what was looked at.
FreeVerdict JudgeAll(const std::string& job_id, const std::vector<GpuWorker>& workers,
                     const std::vector<GpuUse>& uses, const GpuBaseline& baseline) {
  FreeVerdict all{true, ""};
  for (size_t i = 0; i < workers.size(); ++i) {
    const int64_t before = i < baseline.size() ? baseline[i] : -1;
    FreeVerdict verdict = JudgeFree(job_id, workers[i].device, uses[i], before);
    if (!verdict.free) return verdict;
    all.why = std::move(verdict.why);
  }
  return all;
}

}  // namespace

GpuWatch::GpuWatch(Loop* loop, std::string job_id, std::vector<GpuWorker> workers, bool fresh,
                   Callbacks callbacks)
    : shared_(std::make_shared<Shared>()), unused_(fresh) {
  shared_->loop = loop;
  shared_->job_id = std::move(job_id);
  shared_->workers = std::move(workers);
  shared_->callbacks = std::move(callbacks);
  shared_->measuring = fresh;
  StartThread("gpu-errors", [shared = shared_, fresh] {
    absl::StatusOr<NvmlSession> session = NvmlSession::Open();
    if (fresh) {
      shared->loop->Post(
          [shared, uses = UseOf(session, shared->workers)] { shared->Measured(uses); });
    }
    std::vector<std::string> uuids;
    for (const GpuWorker& worker : shared->workers) uuids.push_back(worker.uuid);
    const absl::Status listens = session.ok() ? session->ListenForErrors(uuids) : session.status();
    if (!listens.ok()) {
      return LogWarning("errors of the GPUs of job ", shared->job_id,
                        " will not be told: ", listens.message());
    }
    while (!shared->end.load()) {
      const absl::StatusOr<std::optional<GpuError>> error = session->NextError(kListenFor);
      if (!error.ok()) return LogWarning("job ", shared->job_id, ": ", error.status().message());
      if (!error->has_value()) continue;
      shared->loop->Post([shared, told = **error] {
        if (!shared->over) shared->callbacks.on_error(told);
      });
    }
  });
}

GpuWatch::~GpuWatch() {
  shared_->over = true;
  shared_->end.store(true);
}

void GpuWatch::AwaitFree(std::function<void()> then) {
  if (std::exchange(unused_, false)) {
    if (!shared_->measuring) return then();
    shared_->first = std::move(then);
    return;
  }
  StartThread("gpu-memory", [shared = shared_, then = std::move(then),
                             baseline = shared_->baseline] {
    const Instant begin = Now();
    Instant next_word = begin + kWordEvery;
    const auto say = [shared](std::string text) {
      shared->loop->Post([shared, text = std::move(text)] {
        if (!shared->over) shared->callbacks.on_word(text);
      });
    };
    const absl::StatusOr<NvmlSession> session = NvmlSession::Open();
    FreeVerdict verdict;
    while (!shared->end.load()) {
      verdict =
          JudgeAll(shared->job_id, shared->workers, UseOf(session, shared->workers), baseline);
      if (verdict.free || Now() - begin >= kMemoryPatience) break;
      if (Now() >= next_word) {
        next_word = next_word + kWordEvery;
        say(absl::StrCat("waits for the memory of the old workers since ",
                         (Now() - begin) / seconds(1), " s: ", verdict.why));
      }
      absl::SleepFor(kMemoryPause);
    }
    if (verdict.free) {
      LogInfo("job ", shared->job_id, ": the GPUs are free again after ", ToMillis(Now() - begin),
              " ms; ", verdict.why);
    } else {
      say(absl::StrCat("starts workers although the memory of the old ones did not come back for ",
                       ToSeconds(kMemoryPatience), " s: ", verdict.why));
    }
    shared->loop->Post([shared, then] {
      if (!shared->over) then();
    });
  });
}

}  // namespace trainctl

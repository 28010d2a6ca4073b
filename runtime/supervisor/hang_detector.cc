#include "runtime/supervisor/hang_detector.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/log.h"
#include "runtime/supervisor/diagnosis.h"
#include "runtime/supervisor/process.h"

namespace trainctl {
namespace {

constexpr size_t kMostText = 4 << 20;  // of one worker

void WriteText(const std::string& path, const std::string& text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  const absl::Status written =
      fd.valid() ? WriteAll(fd.get(), text, path) : ErrnoStatus(errno, absl::StrCat("open ", path));
  if (!written.ok()) LogWarning("write down what a worker is at: ", written.message());
}

}  // namespace

HangDetector::HangDetector(Loop& loop, EpochWorkers& workers, const SlotPages& pages,
                           Duration limit, std::string log_folder, Callbacks callbacks)
    : loop_(loop),
      workers_(workers),
      pages_(pages),
      log_folder_(std::move(log_folder)),
      callbacks_(std::move(callbacks)),
      looks_(limit >= Duration(0)),
      watches_(std::min(workers.size(), pages.pages.size()), HangWatch(limit, Now())) {}

HangDetector::~HangDetector() {
  loop_.Cancel(patience_timer_);
  for (const Subject& subject : subjects_) loop_.Unwatch(subject.output.get());
}

void HangDetector::Look() {
  const Instant now = Now();
  for (size_t i = 0; looks_ && i < watches_.size(); ++i) {
    if (!workers_.IsRunning(i)) continue;
    const WorkerPage& page = *pages_.pages[i].get();
    HangWatch::Seen seen;
    seen.phase = static_cast<WorkerPhase>(page.phase.load());
    seen.step = page.step.load();
    if (seen.phase == WorkerPhase::kNone && watches_[i].JudgesSilence()) {
      seen.output_bytes = workers_.OutputBytes(i);
      seen.cpu_ns = CpuNanos(workers_.PidOf(i));
    }
    std::string reason = watches_[i].Look(seen, now);
    if (!reason.empty()) callbacks_.on_suspected(workers_.RankOf(i), seen.step, std::move(reason));
  }
}

void HangDetector::Changed(pid_t pid, bool stopped) {
  for (size_t i = 0; i < watches_.size(); ++i) {
    if (!workers_.IsRunning(i) || workers_.PidOf(i) != pid) continue;
    if (stopped) {
      watches_[i].Stopped(Now());
    } else {
      watches_[i].Continued();
    }
  }
}

void HangDetector::Diagnose() {
  if (!subjects_.empty()) return;
  const Instant now = Now();
  subjects_.reserve(watches_.size());  // debuggers refer to them
  for (size_t i = 0; i < watches_.size(); ++i) {
    if (!workers_.IsRunning(i)) continue;
    const pid_t pid = workers_.PidOf(i);
    WorkerPage& page = *pages_.pages[i].get();
    Subject& subject = subjects_.emplace_back();
    subject.evidence = EvidenceOf(workers_.RankOf(i), pid, page, now);
    subject.path =
        absl::StrCat(LogFolder(log_folder_, workers_.epoch(), workers_.RankOf(i)), "/hang.txt");
    subject.text = DescribeWorker(pid, page, now);
    // At once: what follows may take long, or never come.
    WriteText(subject.path, subject.text);
    StartDebugger(subject, pid);
  }
  patience_timer_ = loop_.After(kPatience, [this] { Finish(); });
  FinishIfDone();
}

void HangDetector::StartDebugger(Subject& subject, pid_t pid) {
  ProcessSpec spec;
  spec.argv = StackCommand(pid);
  if (spec.argv.empty()) return;
  spec.environment = {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent"};
  absl::StatusOr<WorkerProcess> child = Fork(spec);
  if (!child.ok()) {
    LogWarning("start ", spec.argv[0], ": ", child.status().message());
    return;
  }
  absl::StrAppend(&subject.text, "\n", spec.argv[0], ":\n");
  subject.debugger = Fd(static_cast<int>(::syscall(SYS_pidfd_open, child->pid, 0)));
  subject.output = std::move(child->out);
  loop_.Watch(subject.output.get(), EPOLLIN, [this, &subject](uint32_t) { ReadDebugger(subject); });
}

void HangDetector::ReadDebugger(Subject& subject) {
  char bytes[64 * 1024];
  const ssize_t n = ::read(subject.output.get(), bytes, sizeof(bytes));
  if (n < 0) return;
  if (n > 0 && subject.text.size() < kMostText) {
    absl::StrAppend(&subject.text, absl::string_view(bytes, static_cast<size_t>(n)));
    return;
  }
  loop_.Unwatch(subject.output.get());
  subject.output.Close();
  FinishIfDone();
}

void HangDetector::FinishIfDone() {
  const bool pending = std::any_of(subjects_.begin(), subjects_.end(),
                                   [](const Subject& s) { return s.output.valid(); });
  if (!pending) Finish();
}

void HangDetector::Finish() {
  loop_.Cancel(patience_timer_);
  std::vector<frame::RankEvidence> evidence;
  for (Subject& subject : subjects_) {
    loop_.Unwatch(subject.output.get());
    if (subject.debugger.valid()) {
      ::syscall(SYS_pidfd_send_signal, subject.debugger.get(), SIGKILL, nullptr, 0);
    }
    WriteText(subject.path, subject.text);
    evidence.push_back(std::move(subject.evidence));
  }
  subjects_.clear();
  callbacks_.on_diagnosed(std::move(evidence));
}

}  // namespace trainctl

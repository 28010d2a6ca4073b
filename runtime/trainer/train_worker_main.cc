// train-worker: one worker of a job with a `train` section. Started by the supervisor, or by hand
// as the only worker. Exit status: 0 done or stopped on request, 1 failed, 2 wrong use.
#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/compute_thread.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/flags.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"
#include "runtime/trainer/config.h"
#include "runtime/trainer/replica.h"
#include "runtime/trainer/trainer.h"
#include "runtime/worker/gloo_communicator.h"
#include "runtime/worker/gloo_mesh.h"
#include "runtime/worker/session.h"

namespace trainctl {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;

absl::StatusOr<TrainConfig> ReadConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return ParseTrainConfig(text);
}

// A scheduler's SIGTERM may reach every process of a job. Whoever runs the job then asks by the
// page for a last checkpoint, and it is the supervisor, our parent, who ends us if that takes too
// long.
void OnTerminate(int signo, siginfo_t* from, void*) {
  if (from->si_pid != getppid()) return;
  std::signal(signo, SIG_DFL);
  raise(signo);
}

void ObeyNobodyElse() {
  if (std::getenv("TRAINCTL_PREEMPTIBLE") == nullptr) return;
  struct sigaction action {};
  action.sa_sigaction = OnTerminate;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

absl::Status Run(const TrainConfig& config, TrainerOptions options) {
  // First, because threads made later inherit what it sets.
  ops::PrepareComputeThread();
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::FromEnvironment());
  options.decides_retention = std::getenv("TRAINCTL_SOCKET") == nullptr;
  if (const char* path = std::getenv("TRAINCTL_RESUME_FROM")) options.resume_from = path;
  ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator, ConnectGloo(*session));
  return Train(config, options, *session, *communicator);
}

// The reason, for the user on stderr and for the report where the launcher asked for it.
void Tell(const absl::Status& status) {
  const bool victim = absl::IsUnavailable(status) || absl::IsAborted(status);
  const std::string message = absl::StrCat(victim ? "lost its peer: " : "", status.message());
  std::fprintf(stderr, "train-worker: %s\n", message.c_str());
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  nlohmann::json extra = {{"timestamp", absl::StrCat(WallClockNanos() / 1'000'000'000)}};
  // What the coordinator cannot tell from an exit status.
  int absent = 0;
  if (absl::IsResourceExhausted(status) && !status.GetPayload(kGpuMemory).has_value()) {
    extra["class"] = "disk";
  } else if (const auto rank = status.GetPayload(kAbsentRank);
             rank.has_value() && absl::SimpleAtoi(std::string(*rank), &absent)) {
    extra["class"] = "hang";
    extra["rank"] = absent;
  }
  const nlohmann::json error = {{"message", {{"message", message}, {"extraInfo", extra}}}};
  const std::string text = JsonText(error);
  if (absl::Status written = WriteFileAtomically(path, text); !written.ok()) {
    std::fprintf(stderr, "train-worker: %s\n", std::string(written.message()).c_str());
  }
}

// What another try cannot mend: the coordinator reads the status together with our name on stderr.
constexpr int kUsersToMend = 2;
int ExitStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
      return kUsersToMend;
    default:
      return 1;
  }
}

int Main(int argc, char** argv) {
  InitLog("train-worker");
  ObeyNobodyElse();
  std::string config_path;
  std::string config_text;
  TrainerOptions options;
  Flags flags(
      "train-worker",
      "train-worker: one worker of a job with a train section; trainctl launch JOB.yaml starts it."
      "\n\nExit status: 0 done, or stopped on request; 1 failed; 2 wrong use, configuration or "
      "data.");
  flags.Add("--config", &config_path, "FILE",
            "file with the job file's sections train and checkpoint, as JSON");
  flags.Add("--config-text", &config_text, "JSON",
            "the same, for nodes that do not share the file");
  flags.NotTogether("--config", "--config-text");
  flags.Add("--loss-file", &options.loss_file, "FILE",
            "append the loss of every step here (rank 0)");
  if (const std::optional<int> ended = flags.Parse(argc, argv)) return *ended;
  const absl::StatusOr<TrainConfig> config =
      config_text.empty() ? ReadConfig(config_path) : ParseTrainConfig(config_text);
  if (!config.ok()) {
    Tell(config.status());
    return kUsersToMend;
  }
  const absl::Status status = Run(*config, options);
  if (status.ok()) return 0;
  Tell(status);
  return ExitStatusOf(status);
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) { return trainctl::Main(argc, argv); }

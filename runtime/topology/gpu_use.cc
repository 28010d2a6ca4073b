#include "runtime/topology/gpu_use.h"

#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr size_t kMostProcesses = 256;
constexpr size_t kMostEnvironment = 1 << 20;
constexpr size_t kMostName = 256;

std::string ErrorText(const NvmlApi& api, NvmlReturn code) {
  if (code == kNvmlGpuIsLost) {
    return "it has fallen off the bus; reboot the node (dmesg names the Xid)";
  }
  return api.error_text != nullptr ? api.error_text(code) : absl::StrCat("NVML error ", code);
}

// What /proc tells of it, which is nothing of a process in another container.
void Recognise(GpuProcess* process) {
  const std::string folder = absl::StrCat("/proc/", process->pid);
  struct stat info;
  const absl::StatusOr<std::string> name = ReadFile(absl::StrCat(folder, "/comm"), kMostName);
  if (!name.ok() || ::stat(folder.c_str(), &info) < 0) return;
  process->name = std::string(absl::StripAsciiWhitespace(*name));
  const passwd* user = ::getpwuid(info.st_uid);
  process->owner =
      user != nullptr ? std::string(user->pw_name) : absl::StrCat("user ", info.st_uid);
  const absl::StatusOr<std::string> environment =
      ReadFile(absl::StrCat(folder, "/environ"), kMostEnvironment);
  if (!environment.ok()) return;
  for (absl::string_view entry : absl::StrSplit(*environment, '\0')) {
    if (absl::ConsumePrefix(&entry, "TRAINCTL_JOB_ID=")) process->job = std::string(entry);
  }
}

}  // namespace

absl::StatusOr<NvmlSession> NvmlSession::Open() {
  const SignalsBlocked in_threads_of_the_driver;
  ASSIGN_OR_RETURN(const NvmlApi api, LoadNvml());
  if (const NvmlReturn started = api.init(); started != kNvmlSuccess) {
    return absl::UnavailableError(
        absl::StrCat("the NVIDIA driver does not start: ", ErrorText(api, started)));
  }
  return NvmlSession(api);
}

NvmlSession::NvmlSession(NvmlSession&& other) noexcept
    : api_(other.api_),
      open_(std::exchange(other.open_, false)),
      events_(std::exchange(other.events_, nullptr)),
      listening_(std::move(other.listening_)) {}

NvmlSession::~NvmlSession() {
  if (events_ != nullptr && api_.event_set_free != nullptr) api_.event_set_free(events_);
  if (open_) api_.shutdown();
}

GpuUse NvmlSession::Use(const std::string& uuid) const {
  GpuUse use;
  NvmlDevice device = nullptr;
  const NvmlReturn opened = api_.device_by_uuid == nullptr
                                ? kNvmlNotSupported
                                : api_.device_by_uuid(uuid.c_str(), &device);
  if (opened != kNvmlSuccess) {
    use.problem = ErrorText(api_, opened);
    return use;
  }
  NvmlMemory2 memory2{};
  memory2.version = kNvmlMemory2Version;
  NvmlMemory memory{};
  NvmlReturn told = kNvmlNotSupported;
  if (api_.memory2 != nullptr && (told = api_.memory2(device, &memory2)) == kNvmlSuccess) {
    use.used_mib = static_cast<int64_t>(memory2.used >> 20);
  } else if ((told = api_.memory(device, &memory)) == kNvmlSuccess) {
    use.used_mib = static_cast<int64_t>(memory.used >> 20);
  }
  if (told == kNvmlGpuIsLost) use.problem = ErrorText(api_, told);
  std::vector<NvmlProcess> processes(kMostProcesses);
  unsigned count = kMostProcesses;
  if (api_.compute_processes == nullptr) return use;
  const NvmlReturn listed = api_.compute_processes(device, &count, processes.data());
  if (listed == kNvmlGpuIsLost) use.problem = ErrorText(api_, listed);
  if (listed != kNvmlSuccess && listed != kNvmlInsufficientSize) return use;
  processes.resize(std::min<size_t>(count, kMostProcesses));
  for (const NvmlProcess& process : processes) {
    GpuProcess& seen = use.processes.emplace_back();
    seen.pid = static_cast<int>(process.pid);
    if (process.used_bytes != ~0ull) seen.used_mib = static_cast<int64_t>(process.used_bytes >> 20);
    Recognise(&seen);
  }
  return use;
}

absl::Status NvmlSession::ListenForErrors(const std::vector<std::string>& uuids) {
  if (api_.event_set_create == nullptr || api_.event_set_free == nullptr ||
      api_.register_events == nullptr || api_.event_wait == nullptr ||
      api_.device_by_uuid == nullptr) {
    return absl::UnimplementedError("this driver has no events");
  }
  if (const NvmlReturn made = api_.event_set_create(&events_); made != kNvmlSuccess) {
    events_ = nullptr;
    return absl::UnimplementedError(
        absl::StrCat("ask the driver for events: ", ErrorText(api_, made)));
  }
  for (const std::string& uuid : uuids) {
    NvmlDevice device = nullptr;
    NvmlReturn registered = api_.device_by_uuid(uuid.c_str(), &device);
    if (registered == kNvmlSuccess) {
      registered = api_.register_events(device, kNvmlEventXid, events_);
    }
    if (registered != kNvmlSuccess) {
      return absl::UnimplementedError(
          absl::StrCat("ask the driver for errors of ", uuid, ": ", ErrorText(api_, registered)));
    }
    listening_.emplace_back(device, uuid);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<GpuError>> NvmlSession::NextError(Duration patience) const {
  NvmlEvent event{};
  const auto milliseconds = static_cast<unsigned>(patience.count() / 1'000'000);
  const NvmlReturn came = api_.event_wait(events_, &event, milliseconds);
  if (came == kNvmlTimeout) return std::nullopt;
  if (came != kNvmlSuccess) {
    return absl::UnavailableError(absl::StrCat("wait for errors: ", ErrorText(api_, came)));
  }
  if (event.type != kNvmlEventXid) return std::nullopt;
  GpuError error;
  error.xid = static_cast<int64_t>(event.data);
  for (const auto& [device, uuid] : listening_) {
    if (device == event.device) error.uuid = uuid;
  }
  return error;
}

std::string DescribeProcess(const GpuProcess& process) {
  return absl::StrCat("process ", process.pid,
                      process.name.empty()
                          ? " (not to be seen from here: of another container?)"
                          : absl::StrCat(" (", process.name, ") of ", process.owner),
                      process.job.empty() ? "" : absl::StrCat(", a worker of job ", process.job),
                      process.used_mib < 0 ? "" : absl::StrCat(", ", process.used_mib, " MiB"));
}

absl::Status CheckGpusAreFree(const std::vector<GpuWorker>& workers) {
  const absl::StatusOr<NvmlSession> driver = NvmlSession::Open();
  if (!driver.ok()) return absl::OkStatus();
  for (const GpuWorker& worker : workers) {
    const GpuUse use = driver->Use(worker.uuid);
    if (!use.problem.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(worker.device, " cannot be used: ", use.problem));
    }
    if (use.processes.empty()) continue;
    std::vector<std::string> users;
    for (const GpuProcess& process : use.processes) users.push_back(DescribeProcess(process));
    return absl::FailedPreconditionError(absl::StrCat(
        worker.device, " (", worker.uuid, ") is in use by ", absl::StrJoin(users, "; "),
        "; choose others (--gpus), end it, or give --share-gpus"));
  }
  return absl::OkStatus();
}

}  // namespace trainctl

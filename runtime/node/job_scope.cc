#include "runtime/node/job_scope.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr char kManager[] = "org.freedesktop.systemd1";
constexpr char kManagerPath[] = "/org/freedesktop/systemd1";
constexpr char kManagerInterface[] = "org.freedesktop.systemd1.Manager";
constexpr char kUnitExists[] = "org.freedesktop.systemd1.UnitExists";
constexpr Duration kPatience = seconds(5);
constexpr uint64_t kNoLimit = UINT64_MAX;
constexpr uint64_t kStopPatienceUs = 5'000'000;

absl::Status BusStatus(int negative_errno, absl::string_view what) {
  return ErrnoStatus(-negative_errno, what);
}

}  // namespace

std::string ScopeName(absl::string_view shim_socket) {
  absl::string_view name = shim_socket.substr(shim_socket.rfind('/') + 1);
  absl::ConsumeSuffix(&name, ".shim");
  std::string escaped = "trainctl-";
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ||
        c == ':') {
      escaped.push_back(c);
    } else {
      absl::StrAppendFormat(&escaped, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

JobScope::JobScope(Loop* loop, pid_t pid, ScopeSpec spec, Done done)
    : loop_(loop), pid_(pid), spec_(std::move(spec)), done_(std::move(done)) {
  absl::Status status = Connect();
  if (status.ok()) status = Ask();
  // An error is told later, as everything is.
  give_up_ = loop_->After(status.ok() ? kPatience : Duration(0), [this, status] {
    End(!status.ok()
            ? status
            : absl::DeadlineExceededError(absl::StrCat(
                  "systemd did not make the scope ", spec_.name, " in ", ToSeconds(kPatience),
                  " s; see journalctl --unit ", spec_.name, ".scope")));
  });
}

JobScope::~JobScope() { Hangup(); }

void JobScope::Hangup() {
  loop_->Cancel(give_up_);
  if (fd_ >= 0) loop_->Unwatch(std::exchange(fd_, -1));
  if (bus_ != nullptr) systemd_->bus_close_unref(std::exchange(bus_, nullptr));
}

void JobScope::End(const absl::Status& status) {
  Hangup();
  if (done_) std::exchange(done_, nullptr)(status);
}

bool JobScope::FindOwnUnit() {
  char* unit = nullptr;
  const bool user = systemd_->pid_get_user_unit(0, &unit) >= 0;
  if (user || systemd_->pid_get_unit(0, &unit) >= 0) own_unit_ = unit;
  std::free(unit);
  return user;
}

absl::Status JobScope::Connect() {
  ASSIGN_OR_RETURN(systemd_, LoadLibsystemd());
  const bool user = FindOwnUnit();
  int r = user ? systemd_->bus_open_user(&bus_) : systemd_->bus_open_system(&bus_);
  if (r < 0) {
    return BusStatus(r, absl::StrCat("connect to the D-Bus of the ", user ? "user" : "system",
                                     " (is the package dbus installed?)"));
  }
  r = systemd_->bus_match_signal_async(
      bus_, nullptr, kManager, kManagerPath, kManagerInterface, "JobRemoved",
      [](sd_bus_message* signal, void* self, sd_bus_error*) {
        return static_cast<JobScope*>(self)->OnJobRemoved(signal);
      },
      nullptr, this);
  if (r < 0) return BusStatus(r, "listen to systemd on D-Bus");
  fd_ = systemd_->bus_get_fd(bus_);
  if (fd_ < 0) return BusStatus(std::exchange(fd_, -1), "watch the connection to D-Bus");
  loop_->Watch(fd_, EPOLLIN | EPOLLOUT, [this](uint32_t) { Process(); });
  return absl::OkStatus();
}

absl::Status JobScope::Ask() {
  sd_bus_message* call = nullptr;
  int r = systemd_->bus_message_new_method_call(bus_, &call, kManager, kManagerPath,
                                                kManagerInterface, "StartTransientUnit");
  if (r >= 0) {
    // The limit on tasks would otherwise be the one that suits a small service. A scope that failed
    // is forgotten, so that its name is free again. At a shutdown we end before it, so that we do
    // not see its workers die and take it for their own failure.
    const std::string unit = absl::StrCat(spec_.name, ".scope");
    // One property a line.
    r = systemd_->bus_message_append(call, "ssa(sv)a(sa(sv))", unit.c_str(), "fail", 9,  //
                                     "Description", "s", spec_.description.c_str(),      //
                                     "PIDs", "au", 1, static_cast<uint32_t>(pid_),       //
                                     "Delegate", "b", 1,                                 //
                                     "Before", "as", 1, own_unit_.c_str(),               //
                                     "Slice", "s", "trainctl.slice",                     //
                                     "KillSignal", "i", spec_.end_signal,                //
                                     "TimeoutStopUSec", "t", kStopPatienceUs,            //
                                     "TasksMax", "t", kNoLimit,                          //
                                     "CollectMode", "s", "inactive-or-failed",           //
                                     0);
  }
  if (r >= 0) {
    r = systemd_->bus_call_async(
        bus_, nullptr, call,
        [](sd_bus_message* reply, void* self, sd_bus_error*) {
          return static_cast<JobScope*>(self)->OnReply(reply);
        },
        this, 0);
  }
  systemd_->bus_message_unref(call);
  return r < 0 ? BusStatus(r, "ask systemd for a scope") : absl::OkStatus();
}

int JobScope::OnReply(sd_bus_message* reply) {
  const sd_bus_error* error = systemd_->bus_message_get_error(reply);
  if (error == nullptr) {
    const char* job = nullptr;
    if (systemd_->bus_message_read(reply, "o", &job) > 0) start_job_ = job;
    return 0;
  }
  // That of the shim before may not be quite gone.
  if (absl::string_view(error->name) == kUnitExists && !std::exchange(renamed_, true)) {
    absl::StrAppend(&spec_.name, ".", pid_);
    outcome_ = Ask();
    ended_ = !outcome_.ok();
    return 0;
  }
  ended_ = true;
  outcome_ = absl::FailedPreconditionError(
      absl::StrCat("ask systemd for the scope ", spec_.name, ": ",
                   error->message != nullptr ? error->message : error->name));
  return 0;
}

int JobScope::OnJobRemoved(sd_bus_message* signal) {
  uint32_t id = 0;
  const char* job = nullptr;
  const char* unit = nullptr;
  const char* result = nullptr;
  if (systemd_->bus_message_read(signal, "uoss", &id, &job, &unit, &result) < 0) return 0;
  if (absl::string_view(job) != start_job_) return 0;
  ended_ = true;
  if (absl::string_view(result) != "done") {
    outcome_ = absl::InternalError(absl::StrCat("systemd could not start ", unit, " (", result,
                                                "); see journalctl --unit ", unit));
  }
  return 0;
}

void JobScope::Process() {
  int r;
  do {
    r = systemd_->bus_process(bus_, nullptr);
  } while (r > 0 && !ended_);
  if (ended_) return End(outcome_);
  const int events = r < 0 ? r : systemd_->bus_get_events(bus_);
  if (events < 0) return End(BusStatus(events, "speak with systemd on D-Bus"));
  // Bits of poll(2), which are those of epoll.
  loop_->Modify(fd_, static_cast<uint32_t>(events));
}

}  // namespace trainctl

// What the user asked.
#include "launcher/wire.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/network.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

namespace trainctl {
namespace {

constexpr int kMaxArguments = 65536;
constexpr size_t kMaxSpecBytes = 8 << 20;

absl::Status Invalid(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("job specification: ", field, " ", problem));
}

absl::Status CheckText(absl::string_view field, absl::string_view text) {
  if (text.find('\0') != absl::string_view::npos) return Invalid(field, "contains a NUL byte");
  return absl::OkStatus();
}

absl::Status CheckPath(absl::string_view field, absl::string_view path) {
  RETURN_IF_ERROR(CheckText(field, path));
  if (!path.empty() && path[0] != '/') {
    return Invalid(field, absl::StrCat("is \"", path, "\", not an absolute path"));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(field, absl::StrCat("is ", value, "; it must be from ", low, " to ", high));
}

// A job id names files and sockets, whose paths are limited to 108 bytes.
absl::Status CheckJobId(absl::string_view id) {
  const bool good =
      id.size() <= 40 && (id.empty() || id[0] != '.') &&
      std::all_of(id.begin(), id.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
      });
  if (good) return absl::OkStatus();
  return Invalid("job_id", absl::StrCat("is \"", id.substr(0, 60),
                                        "\"; at most 40 of a-z 0-9 - _ . and no leading dot"));
}

absl::Status CheckSpec(const JobSpec& spec) {
  RETURN_IF_ERROR(CheckJobId(spec.job_id));
  if (spec.name.size() > 200) return Invalid("name", "is longer than 200 bytes");
  if (spec.command.empty() || spec.command[0].empty()) return Invalid("command", "is empty");
  RETURN_IF_ERROR(CheckRange("number of arguments", static_cast<int64_t>(spec.command.size()), 1,
                             kMaxArguments));
  RETURN_IF_ERROR(CheckRange("number of environment variables",
                             static_cast<int64_t>(spec.env.size()), 0, kMaxArguments));
  for (const std::string& argument : spec.command) {
    RETURN_IF_ERROR(CheckText("command", argument));
  }
  for (const std::string& entry : spec.env) {
    RETURN_IF_ERROR(CheckText("environment", entry));
    const size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return Invalid("environment", absl::StrCat("has the entry \"", entry, "\"; NAME=value"));
    }
  }
  if (spec.cwd.empty()) return Invalid("cwd", "is empty");
  RETURN_IF_ERROR(CheckPath("cwd", spec.cwd));
  RETURN_IF_ERROR(CheckPath("job_folder", spec.job_folder));
  RETURN_IF_ERROR(CheckPath("log_folder", spec.log_folder));
  RETURN_IF_ERROR(CheckPath("checkpoint_folder", spec.checkpoint_folder));
  RETURN_IF_ERROR(CheckRange("min_nodes", spec.min_nodes, 1, kMaxNodes));
  RETURN_IF_ERROR(CheckRange("max_nodes", spec.max_nodes, spec.min_nodes, kMaxNodes));
  RETURN_IF_ERROR(CheckRange("spares", spec.spares, 0, kMaxNodes));
  RETURN_IF_ERROR(
      CheckRange("number of nodes", static_cast<int64_t>(spec.nodes.size()), 0, kMaxNodes));
  if (std::set<std::string>(spec.nodes.begin(), spec.nodes.end()).size() < spec.nodes.size()) {
    return Invalid("nodes", "names a node twice");
  }
  RETURN_IF_ERROR(
      CheckRange("workers_per_node", spec.workers_per_node, kEverySlot, kMaxWorkersPerNode));
  if (!spec.node_slots.empty() && spec.node_slots.size() != spec.nodes.size()) {
    return Invalid("node_slots", "has another number of entries than nodes");
  }
  RETURN_IF_ERROR(CheckRange("daemon_port", spec.daemon_port, 0, 65535));
  for (const auto& [field, path] :
       {std::pair("tls.key", &spec.key_file), std::pair("tls.certificate", &spec.tls_certificate),
        std::pair("tls.private_key", &spec.tls_private_key),
        std::pair("tls.authority", &spec.tls_authority)}) {
    RETURN_IF_ERROR(CheckPath(field, *path));
  }
  if (!spec.listen.empty()) RETURN_IF_ERROR(ParseEndpoint(spec.listen, 0).status());
  RETURN_IF_ERROR(CheckRange("max_restarts", spec.max_restarts, 0, 1'000'000));
  RETURN_IF_ERROR(CheckRange("grace_ns", spec.grace.count(), 0, Duration(seconds(86400)).count()));
  RETURN_IF_ERROR(CheckRange("lease_ns", spec.lease.count(), Duration(milliseconds(100)).count(),
                             Duration(seconds(3600)).count()));
  return absl::OkStatus();
}

}  // namespace

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec m;
  m.set_job_id(spec.job_id);
  m.set_name(ValidUtf8(spec.name));
  for (const std::string& argument : spec.command) m.add_command(argument);
  m.set_cwd(spec.cwd);
  for (const std::string& entry : spec.env) m.add_env(entry);
  m.set_role(spec.role);
  m.set_local_rank_argument(spec.local_rank_argument);
  m.set_virtual_local_rank(spec.virtual_local_rank);
  m.set_min_nodes(spec.min_nodes);
  m.set_max_nodes(spec.max_nodes);
  m.set_spares(spec.spares);
  for (const std::string& node : spec.nodes) m.add_nodes(ValidUtf8(node));
  m.set_ranks_follow_nodes(spec.ranks_follow_nodes);
  m.set_workers_per_node(spec.workers_per_node);
  m.set_max_restarts(spec.max_restarts);
  m.set_window_restarts(spec.window_restarts);
  m.set_restart_window_ns(spec.restart_window.count());
  m.set_no_progress_epochs(spec.no_progress_epochs);
  m.set_grace_ns(spec.grace.count());
  m.set_lease_ns(spec.lease.count());
  m.set_join_timeout_ns(spec.join_timeout.count());
  m.set_orphan_timeout_ns(spec.orphan_timeout.count());
  m.set_hang_timeout_ns(spec.hang_timeout.count());
  m.set_memory_limit(spec.memory_limit);
  m.set_process_limit(spec.process_limit);
  m.set_log_quota(spec.log_quota);
  m.set_job_folder(spec.job_folder);
  m.set_log_folder(spec.log_folder);
  m.set_checkpoint_folder(spec.checkpoint_folder);
  m.set_checkpoint_keep(spec.checkpoint_keep);
  m.set_preemptible(spec.preemptible);
  m.set_propagate_exit_code(spec.propagate_exit_code);
  m.set_requeue_status(spec.requeue_status);
  for (const std::string& uuid : spec.gpus) m.add_gpus(uuid);
  if (spec.gpu_wish.wanted) {
    m.mutable_gpu_wish()->set_gpus(ValidUtf8(spec.gpu_wish.gpus));
    m.mutable_gpu_wish()->set_binding(ValidUtf8(spec.gpu_wish.binding));
    m.mutable_gpu_wish()->set_share(spec.gpu_wish.share);
  }
  m.set_transport_plan(spec.transport_plan);
  m.set_listen(spec.listen);
  m.set_head(spec.head);
  m.set_claim(ValidUtf8(spec.claim));
  m.mutable_tls()->set_key(spec.key_file);
  m.mutable_tls()->set_certificate(spec.tls_certificate);
  m.mutable_tls()->set_private_key(spec.tls_private_key);
  m.mutable_tls()->set_authority(spec.tls_authority);
  m.set_daemon_port(spec.daemon_port);
  for (const int slots : spec.node_slots) m.add_node_slots(slots);
  return m;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& m) {
  if (m.ByteSizeLong() > kMaxSpecBytes) {
    return Invalid("its size",
                   absl::StrCat("is ", m.ByteSizeLong(), " bytes; the limit is ", kMaxSpecBytes));
  }
  JobSpec spec;
  spec.job_id = m.job_id();
  spec.name = m.name();
  spec.command.assign(m.command().begin(), m.command().end());
  spec.cwd = m.cwd();
  spec.env.assign(m.env().begin(), m.env().end());
  spec.role = m.role();
  spec.local_rank_argument = m.local_rank_argument();
  spec.virtual_local_rank = m.virtual_local_rank();
  spec.min_nodes = m.min_nodes();
  spec.max_nodes = m.max_nodes();
  spec.spares = m.spares();
  spec.nodes.assign(m.nodes().begin(), m.nodes().end());
  spec.ranks_follow_nodes = m.ranks_follow_nodes();
  spec.workers_per_node = m.workers_per_node();
  spec.max_restarts = m.max_restarts();
  spec.window_restarts = m.window_restarts();
  spec.restart_window = Duration(m.restart_window_ns());
  spec.no_progress_epochs = m.no_progress_epochs();
  spec.grace = Duration(m.grace_ns());
  spec.lease = Duration(m.lease_ns());
  spec.join_timeout = Duration(m.join_timeout_ns());
  spec.orphan_timeout = Duration(m.orphan_timeout_ns());
  spec.hang_timeout = Duration(m.hang_timeout_ns());
  spec.memory_limit = m.memory_limit();
  spec.process_limit = m.process_limit();
  spec.log_quota = m.log_quota();
  spec.job_folder = m.job_folder();
  spec.log_folder = m.log_folder();
  spec.checkpoint_folder = m.checkpoint_folder();
  spec.checkpoint_keep = m.checkpoint_keep();
  spec.preemptible = m.preemptible();
  spec.propagate_exit_code = m.propagate_exit_code();
  spec.requeue_status = m.requeue_status();
  spec.gpus.assign(m.gpus().begin(), m.gpus().end());
  spec.gpu_wish = {m.has_gpu_wish(), m.gpu_wish().gpus(), m.gpu_wish().binding(),
                   m.gpu_wish().share()};
  spec.transport_plan = m.transport_plan();
  spec.listen = m.listen();
  spec.head = m.head();
  spec.claim = m.claim();
  spec.key_file = m.tls().key();
  spec.tls_certificate = m.tls().certificate();
  spec.tls_private_key = m.tls().private_key();
  spec.tls_authority = m.tls().authority();
  spec.daemon_port = m.daemon_port();
  spec.node_slots.assign(m.node_slots().begin(), m.node_slots().end());
  RETURN_IF_ERROR(CheckSpec(spec));
  return spec;
}

std::string EncodeSpec(const JobSpec& spec) { return ToProto(spec).SerializeAsString(); }

absl::StatusOr<JobSpec> DecodeSpec(const std::string& bytes) {
  v1::JobSpec message;
  if (!message.ParseFromString(bytes)) {
    return absl::DataLossError("job specification: the file is damaged");
  }
  return FromProto(message);
}

}  // namespace trainctl

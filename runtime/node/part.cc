#include "runtime/node/part.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/coordinator/spec.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/network.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"
#include "runtime/security/peer_name.h"
#include "runtime/security/tls_files.h"
#include "runtime/topology/gpu_binding.h"
#include "runtime/topology/gpu_use.h"
#include "runtime/topology/probe.h"
#include "runtime/topology/topology_text.h"

namespace trainctl {
namespace {

constexpr size_t kMaxPartBytes = 1 << 20;

std::string MachineName() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::vector<int> CpusAllowed() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) < 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// One boot of one kernel, and which of its networks: two containers of one machine may have the
// same loopback or not.
std::string Machine() {
  const absl::StatusOr<std::string> boot = ReadFile("/proc/sys/kernel/random/boot_id", 100);
  struct stat network {};
  if (!boot.ok() || ::stat("/proc/self/ns/net", &network) < 0) return "";
  return absl::StrCat(absl::StripAsciiWhitespace(*boot), "-", network.st_ino);
}

std::string PartPath(const std::string& folder) { return JoinPath(folder, "part.pb"); }

absl::Status Invalid(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("part in a job: ", field, " ", problem));
}

std::vector<InterfaceAddress> AddressesFor(const v1::NodePart& part, const std::string& listen) {
  if (!part.address().empty()) return {{"", part.address()}};
  std::vector<InterfaceAddress> addresses;
  const auto add = [&addresses](const InterfaceAddress& address) {
    for (const InterfaceAddress& known : addresses) {
      if (known.address == address.address) return;
    }
    addresses.push_back(address);
  };
  // A node that is called by its address is reached there.
  if (IsLiteralAddress(part.node()) && IsOwnAddress(part.node())) add({"", part.node()});
  if (!part.coordinator().empty()) {
    // Whence the coordinator is reached, the other nodes most likely are, too.
    const absl::StatusOr<Endpoint> coordinator = ParseEndpoint(part.coordinator(), 0);
    const std::string own = coordinator.ok() ? AddressTowards(coordinator->name) : "";
    if (!own.empty()) add({"", own});
  } else if (const absl::StatusOr<Endpoint> own = ParseEndpoint(listen, 0);
             own.ok() && IsOwnAddress(own->name)) {
    add({"", own->name});
  }
  for (const InterfaceAddress& address : OwnAddresses()) add(address);
  // Interfaces have names, whoever found the address.
  for (InterfaceAddress& address : addresses) {
    for (const InterfaceAddress& own : OwnAddresses()) {
      if (own.address == address.address) address.interface = own.interface;
    }
  }
  if (addresses.empty()) addresses.push_back({"lo", "127.0.0.1"});
  return addresses;
}

}  // namespace

NodeFacts ThisNode(const std::string& name) {
  NodeFacts facts;
  facts.node = name.empty() ? MachineName() : name;
  // One life of a daemon: a later life on this machine has a larger number.
  facts.incarnation = WallClockNanos();
  facts.machine = Machine();
  facts.cores = std::max(static_cast<int>(CpusAllowed().size()), 1);
  return facts;
}

absl::Status CheckPart(const v1::NodePart& part) {
  if (part.job_id().empty() || part.job_id().find('/') != std::string::npos ||
      part.job_id()[0] == '.' || part.job_id().size() > 40) {
    return Invalid("job_id", "must have 1 to 40 bytes, no / and no leading dot");
  }
  if (!IsNodeName(part.node())) {
    return Invalid("node", absl::StrCat("is \"", part.node().substr(0, 60),
                                        "\"; 1 to 253 of A-Z a-z 0-9 . _ - are a name"));
  }
  if (part.slots() < 1 || part.slots() > kMaxWorkersPerNode) {
    return Invalid("slots", absl::StrCat("is ", part.slots(), "; give 1 to ", kMaxWorkersPerNode));
  }
  if (Duration(part.lease_ns()) < milliseconds(100) || Duration(part.lease_ns()) > seconds(3600)) {
    return Invalid("lease_ns", absl::StrCat("is ", part.lease_ns(), "; 0.1 s to 1 h are a lease"));
  }
  if (!part.address().empty() && !IsLiteralAddress(part.address())) {
    return Invalid("address", absl::StrCat("is \"", part.address().substr(0, 100),
                                           "\", which is no literal address"));
  }
  return ParseEndpoint(part.coordinator(), 0).status();
}

WorkerBinding BindingOf(const v1::NodePart& part) {
  WorkerBinding binding;
  for (const v1::NodeBinding::Worker& worker : part.binding().workers()) {
    binding.workers.push_back({worker.device(),
                               worker.uuid(),
                               worker.numa(),
                               {worker.cpus().begin(), worker.cpus().end()}});
  }
  binding.slices = part.binding().slices();
  binding.settings = {part.binding().settings().begin(), part.binding().settings().end()};
  return binding;
}

absl::Status PlanGpus(v1::NodePart* part) {
  GpuRequest request;
  request.gpus = part->gpu_wish().gpus();
  request.workers = part->slots();
  request.several_nodes = true;
  request.allowed_cpus = CpusAllowed();
  ASSIGN_OR_RETURN(request.binding, ParseCpuBinding(part->gpu_wish().binding()));
  ASSIGN_OR_RETURN(const GpuBinding planned, BindGpus(ProbeTopology(), request));
  if (!part->gpu_wish().share()) {
    RETURN_IF_ERROR(CheckGpusAreFree(planned.workers.workers));
  }
  v1::NodeBinding* binding = part->mutable_binding();
  for (const GpuWorker& worker : planned.workers.workers) {
    v1::NodeBinding::Worker* out = binding->add_workers();
    out->set_device(worker.device);
    out->set_uuid(worker.uuid);
    out->set_numa(worker.numa);
    for (const int cpu : worker.cpus) out->add_cpus(cpu);
    if (!part->gpu_wish().share()) part->add_gpus(worker.uuid);
  }
  binding->set_slices(planned.workers.slices);
  binding->mutable_settings()->insert(planned.workers.settings.begin(),
                                      planned.workers.settings.end());
  binding->set_devices(JsonText(TopologyDocument(planned.chosen)));
  part->set_slots(binding->workers_size());
  return absl::OkStatus();
}

absl::Status SavePart(const v1::NodePart& part) {
  RETURN_IF_ERROR(MakePrivateFolder(part.folder()));
  return ReplaceFile(PartPath(part.folder()), part.SerializeAsString());
}

absl::StatusOr<v1::NodePart> LoadPart(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(PartPath(folder), kMaxPartBytes));
  v1::NodePart part;
  if (!part.ParseFromString(bytes) || part.folder() != folder) {
    return absl::DataLossError(absl::StrCat("read ", PartPath(folder), ": it is damaged"));
  }
  return part;
}

absl::StatusOr<JobRunner::Job> JobOf(const v1::NodePart& part) {
  JobRunner::Job job;
  job.job_id = part.job_id();
  job.folder = part.folder();
  job.shim_socket = PartShimSocket(part.job_id(), part.node());
  job.slots = part.slots();
  job.lease = Duration(part.lease_ns());
  job.gpus.assign(part.gpus().begin(), part.gpus().end());
  job.env.assign(part.env().begin(), part.env().end());
  job.cwd = part.cwd();
  job.binding = BindingOf(part);
  ServiceAddress coordinator;
  ASSIGN_OR_RETURN(coordinator.endpoint, ParseEndpoint(part.coordinator(), 0));
  ASSIGN_OR_RETURN(coordinator.identity,
                   LoadIdentity({part.tls().key(), part.tls().certificate(),
                                 part.tls().private_key(), part.tls().authority()},
                                PeerName::Node(part.node()), kNodeValidity));
  coordinator.node = part.head();
  job.coordinator = std::move(coordinator);
  return job;
}

NodeFacts FactsFor(NodeFacts daemon, const v1::NodePart& part, const std::string& listen) {
  if (!part.node().empty()) daemon.node = part.node();
  if (part.has_node_rank()) daemon.node_rank = part.node_rank();
  daemon.topology = part.topology();
  daemon.devices = part.binding().devices();
  const bool alone = part.coordinator().empty() && listen.empty();
  daemon.addresses =
      alone ? std::vector<InterfaceAddress>{{"lo", "127.0.0.1"}} : AddressesFor(part, listen);
  return daemon;
}

}  // namespace trainctl

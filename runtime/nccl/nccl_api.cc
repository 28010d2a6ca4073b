#include "runtime/nccl/nccl_api.h"

#include <dlfcn.h>

#include <climits>
#include <deque>

#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/base/symbols.h"

namespace trainctl {
namespace {

constexpr int kLeastVersion = 21403;
constexpr int kWithName = 22703;
constexpr int kBrokenFrom = 22803;
constexpr int kBrokenTo = 22808;
constexpr unsigned kConfigMagic = 0xcafebeef;

std::string PathOf(const void* function, const std::string& library) {
  Dl_info found{};
  return ::dladdr(function, &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : library;
}

// Threads that are left behind in the library use it to the end of the process.
const NcclApi* Keep(const NcclApi& api) {
  static Mutex mutex;
  static auto* kept = new std::deque<NcclApi>;
  MutexLock lock(&mutex);
  kept->push_back(api);
  return &kept->back();
}

}  // namespace

absl::StatusOr<const NcclApi*> LoadNccl(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return absl::UnavailableError(
        absl::StrCat("load NCCL: ", why,
                     "; install it, or put its folder into LD_LIBRARY_PATH (of a PyTorch by "
                     "pip: site-packages/nvidia/nccl/lib)"));
  }
  NcclApi api{};
  Symbols symbols(handle);
  symbols.Required("ncclGetVersion", &api.get_version);
  if (api.get_version == nullptr || api.get_version(&api.version) != kNcclSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("load NCCL: ", library, " does not tell its version; it is no NCCL"));
  }
  api.path = PathOf(reinterpret_cast<const void*>(api.get_version), library);
  if (const absl::Status fit = CheckNcclVersion(api.version); !fit.ok()) {
    return absl::Status(fit.code(), absl::StrCat("load NCCL: ", api.path, ": ", fit.message()));
  }
  symbols.Required("ncclGetErrorString", &api.error_text);
  symbols.Required("ncclGetLastError", &api.last_error);
  symbols.Required("ncclGetUniqueId", &api.unique_id);
  symbols.Required("ncclCommInitRankConfig", &api.init);
  symbols.Required("ncclCommGetAsyncError", &api.async_error);
  symbols.Required("ncclCommFinalize", &api.finalize);
  symbols.Required("ncclCommDestroy", &api.destroy);
  symbols.Required("ncclCommAbort", &api.abort);
  symbols.Required("ncclAllReduce", &api.all_reduce);
  symbols.Required("ncclReduceScatter", &api.reduce_scatter);
  symbols.Required("ncclAllGather", &api.all_gather);
  symbols.Required("ncclBroadcast", &api.broadcast);
  symbols.Optional("ncclMemAlloc", &api.mem_alloc);
  symbols.Optional("ncclMemFree", &api.mem_free);
  symbols.Optional("ncclCommRegister", &api.enroll);
  symbols.Optional("ncclCommDeregister", &api.withdraw);
  if (!symbols.missing().empty()) {
    return absl::FailedPreconditionError(absl::StrCat("load NCCL: ", api.path, " says that it is ",
                                                      NcclVersionText(api.version), " and has no ",
                                                      symbols.missing()));
  }
  return Keep(api);
}

std::string NcclVersionText(int version) {
  const int base = version < 10000 ? 1000 : 10000;  // numbered otherwise up to 2.8
  return absl::StrCat(version / base, ".", version % base / 100, ".", version % 100);
}

absl::Status CheckNcclVersion(int version) {
  if (version >= kLeastVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "NCCL ", NcclVersionText(version), " is too old: before ", NcclVersionText(kLeastVersion),
      " a call cannot be ended when another worker is lost; install a newer one"));
}

bool NcclRecoversInProcess(int version) { return version < kBrokenFrom || version > kBrokenTo; }

NcclConfig MakeNcclConfig(int version, bool blocking, const char* name) {
  NcclConfig config{};
  config.magic = kConfigMagic;
  config.version = static_cast<unsigned>(version);
  config.blocking = blocking ? 1 : 0;
  for (int* field :
       {&config.cga_cluster_size, &config.min_ctas, &config.max_ctas, &config.split_share,
        &config.traffic_class, &config.collnet, &config.cta_policy, &config.shrink_share,
        &config.nvls_ctas, &config.channels_per_net_peer, &config.nvlink_centric}) {
    *field = INT_MIN;
  }
  // Of the layout that came first, the second ends with padding in which a newer one has a field.
  config.size = offsetof(NcclConfig, min_ctas);
  if (version >= kWithName) {
    config.size = offsetof(NcclConfig, collnet);
    config.name = name;
  }
  return config;
}

}  // namespace trainctl

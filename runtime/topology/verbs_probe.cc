#include "runtime/topology/verbs_probe.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/symbols.h"

namespace trainctl {
namespace {

// The binary interface of libibverbs, of which this is what we call.
struct Device;
struct Context;
struct Domain;
struct PortAttributes {
  int state;
  int max_mtu, active_mtu;
  int gid_table_size;
  uint32_t capabilities, max_message, bad_pkeys, qkey_violations;
  uint16_t pkey_table_size, lid, sm_lid;
  uint8_t lmc, max_vl, sm_sl, subnet_timeout, init_type, active_width, active_speed;
  uint8_t physical_state, link_layer, flags;
  char later_versions[64];
};
struct GidEntry {
  uint8_t address[16];
  uint32_t index, port, type, netdev;
};
static_assert(sizeof(GidEntry) == 32);

struct Api {
  Device** (*list)(int* count);
  void (*free_list)(Device**);
  const char* (*name)(Device*);
  Context* (*open)(Device*);
  int (*close)(Context*);
  int (*port)(Context*, uint8_t port, PortAttributes*);
  int (*gid)(Context*, uint32_t port, uint32_t index, GidEntry*, uint32_t flags, size_t entry_size);
  Domain* (*make_domain)(Context*);
  int (*free_domain)(Domain*);
  void* (*register_dma_buf)(Domain*, uint64_t offset, size_t length, uint64_t iova, int fd,
                            int access);
};

bool Load(const char* library, Api* api) {
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return false;
  }
  Symbols symbols(handle);
  symbols.Optional("_ibv_query_gid_ex", &api->gid);
  symbols.Optional("ibv_reg_dmabuf_mr", &api->register_dma_buf);
  symbols.Required("ibv_get_device_list", &api->list);
  symbols.Required("ibv_free_device_list", &api->free_list);
  symbols.Required("ibv_get_device_name", &api->name);
  symbols.Required("ibv_open_device", &api->open);
  symbols.Required("ibv_close_device", &api->close);
  symbols.Required("ibv_query_port", &api->port);
  symbols.Required("ibv_alloc_pd", &api->make_domain);
  symbols.Required("ibv_dealloc_pd", &api->free_domain);
  return symbols.missing().empty();
}

// A file that is none: a driver that knows DMA-BUF complains about the file, another about the
// call.
Answer TakesDmaBuf(const Api& api, Context* context) {
  Domain* domain = api.register_dma_buf == nullptr ? nullptr : api.make_domain(context);
  if (domain == nullptr) {
    return Answer::kUnknown;
  }
  errno = 0;
  const void* region = api.register_dma_buf(domain, 0, 0, 0, -1, 0);
  const int error = errno;
  api.free_domain(domain);
  if (region == nullptr && (error == EOPNOTSUPP || error == EPROTONOSUPPORT)) {
    return Answer::kNo;
  }
  return region == nullptr && error == EBADF ? Answer::kYes : Answer::kUnknown;
}

std::vector<Gid> ReadGids(const Api& api, Context* context, int port, int table_size) {
  constexpr const char* kTypes[] = {"IB", "RoCE v1", "RoCE v2"};
  std::vector<Gid> gids;
  for (int index = 0; api.gid != nullptr && index < std::min(table_size, 256); ++index) {
    GidEntry entry{};
    if (api.gid(context, static_cast<uint32_t>(port), static_cast<uint32_t>(index), &entry, 0,
                sizeof(entry)) != 0) {
      continue;  // a free entry
    }
    Gid gid;
    gid.index = index;
    char text[INET6_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET6, entry.address, text, sizeof(text));
    gid.address = text;
    gid.type = entry.type < 3 ? kTypes[entry.type] : "";
    char interface[IF_NAMESIZE] = {};
    if (entry.netdev != 0 && ::if_indextoname(entry.netdev, interface) != nullptr) {
      gid.netdev = interface;
    }
    gids.push_back(std::move(gid));
  }
  return gids;
}

void ReadPorts(const Api& api, Context* context, const std::string& name, VerbsSeen* seen) {
  const Answer dma_buf = TakesDmaBuf(api, context);
  for (int number = 1; number <= 255; ++number) {
    PortAttributes attributes{};
    if (api.port(context, static_cast<uint8_t>(number), &attributes) != 0) {
      break;
    }
    VerbsPort port;
    port.device = name;
    port.port = number;
    port.dma_buf = dma_buf;
    if (attributes.state >= 1 && attributes.state <= 4) {
      port.state = static_cast<PortState>(attributes.state);
    }
    port.link_layer = attributes.link_layer == 1   ? LinkLayer::kInfiniBand
                      : attributes.link_layer == 2 ? LinkLayer::kEthernet
                                                   : LinkLayer::kUnknown;
    port.gids = ReadGids(api, context, number, attributes.gid_table_size);
    seen->ports.push_back(std::move(port));
  }
}

}  // namespace

VerbsSeen ProbeVerbs(const char* library) {
  VerbsSeen seen;
  Api api{};
  if (!Load(library, &api)) {
    return seen;
  }
  int count = 0;
  Device** devices = api.list(&count);
  for (int i = 0; devices != nullptr && i < std::min(count, 128); ++i) {
    const char* name = api.name(devices[i]);
    Context* context = api.open(devices[i]);
    if (context == nullptr) {
      seen.problems.push_back(absl::StrCat(
          name, " does not open (", ::strerror(errno),
          "): give this user, or the container, /dev/infiniband and an unlimited memlock"));
      continue;
    }
    ReadPorts(api, context, name, &seen);
    api.close(context);
  }
  if (devices != nullptr) {
    api.free_list(devices);
  }
  return seen;
}

}  // namespace trainctl

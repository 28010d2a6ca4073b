#include "launcher/topology_picture.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "launcher/topology_table.h"
#include "runtime/topology/gpu_catalogue.h"
#include "runtime/topology/plan_parts.h"

namespace trainctl {
namespace {

constexpr int kCell = 132;  // a device with its gap
constexpr int kBox = 116;
constexpr int kMargin = 24;
constexpr int kTop = 78;
constexpr int kSocketPad = 18;
constexpr int kCpuY = kTop + 16, kCpuHeight = 46;
constexpr int kSwitchY = kCpuY + kCpuHeight + 42, kSwitchHeight = 22;
constexpr int kNicY = kSwitchY + kSwitchHeight + 28, kNicHeight = 50;
constexpr int kGpuY = kNicY + kNicHeight + 26, kGpuHeight = 62;
constexpr int kSocketBottom = kGpuY + kGpuHeight + 20;

// Devices below one PCIe switch; a device of its own is a group too.
struct Group {
  std::vector<const Gpu*> gpus;
  std::vector<const Nic*> nics;
  size_t Columns() const { return std::max(gpus.size(), nics.size()); }
  size_t Devices() const { return gpus.size() + nics.size(); }
};

struct Socket {
  int numa = -1;
  std::vector<Group> groups;
};

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Shortened(std::string text, size_t most) {
  return text.size() <= most ? text : absl::StrCat(text.substr(0, most - 1), "…");
}

class Picture {
 public:
  explicit Picture(const Topology& topology) : topology_(topology) { Arrange(); }

  std::string Draw() {
    int x = kMargin;
    for (const Socket& socket : sockets_) {
      x += DrawSocket(socket, x) + kMargin;
    }
    DrawBetweenSockets();
    const int bottom = DrawNvlinks();
    const int width = std::max(x, 660);
    const int height = bottom + 52;
    DrawTitleAndLegend(height);
    return absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\" "
        "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" "
        "height=\"100%%\" fill=\"#ffffff\"/>\n%s%s</svg>\n",
        width, height, width, height, lines_, boxes_);
  }

 private:
  bool AreNear(const std::string& a, const std::string& b) const {
    const Link* link = FindLink(topology_, a, b);
    return link != nullptr && link->path <= PciPath::kPxb;
  }

  Socket& FindSocket(int numa) {
    for (Socket& socket : sockets_) {
      if (socket.numa == numa) {
        return socket;
      }
    }
    sockets_.push_back(Socket{numa, {}});
    return sockets_.back();
  }
  Group& FindGroup(Socket* socket, const std::string& name) {
    for (Group& group : socket->groups) {
      for (const Gpu* gpu : group.gpus) {
        if (AreNear(DeviceName(*gpu), name)) return group;
      }
      for (const Nic* nic : group.nics) {
        if (AreNear(nic->name, name)) return group;
      }
    }
    return socket->groups.emplace_back();
  }

  void Arrange() {
    for (const NumaNode& node : topology_.numa) {
      FindSocket(node.id);
    }
    for (const Gpu& gpu : topology_.gpus) {
      FindGroup(&FindSocket(NumaNodeOf(topology_, gpu.numa)), DeviceName(gpu)).gpus.push_back(&gpu);
    }
    for (const Nic& nic : topology_.nics) {
      FindGroup(&FindSocket(NumaNodeOf(topology_, nic.numa)), nic.name).nics.push_back(&nic);
    }
  }

  void Line(int x1, int y1, int x2, int y2, const char* colour = "#8a939b", int width = 2) {
    absl::StrAppendFormat(&lines_,
                          "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" "
                          "stroke-width=\"%d\"/>\n",
                          x1, y1, x2, y2, colour, width);
  }
  void Text(int x, int y, absl::string_view text, const char* more = "") {
    absl::StrAppendFormat(&boxes_, "<text x=\"%d\" y=\"%d\" %s>%s</text>\n", x, y, more,
                          Escaped(text));
  }
  void Box(int x, int y, int width, int height, const char* fill, const char* stroke,
           const char* more = "") {
    absl::StrAppendFormat(&boxes_,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" "
                          "stroke=\"%s\" stroke-width=\"1.5\" %s/>\n",
                          x, y, width, height, fill, stroke, more);
  }

  int DrawSocket(const Socket& socket, int x) {
    size_t columns = 0;
    for (const Group& group : socket.groups) {
      columns += group.Columns();
    }
    const int inner = std::max(2 * kCell, static_cast<int>(columns) * kCell);
    const int width = inner + 2 * kSocketPad - (kCell - kBox);
    absl::StrAppendFormat(&lines_,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" "
                          "fill=\"#f4f6f8\" stroke=\"#cfd6dc\"/>\n",
                          x, kTop, width, kSocketBottom - kTop);
    DrawCpu(socket, x + kSocketPad, width - 2 * kSocketPad);
    cpu_edges_.emplace_back(x + kSocketPad, x + width - kSocketPad);
    int at = x + kSocketPad;
    for (const Group& group : socket.groups) {
      DrawGroup(group, at);
      at += static_cast<int>(group.Columns()) * kCell;
    }
    return width;
  }

  void DrawCpu(const Socket& socket, int x, int width) {
    Box(x, kCpuY, width, kCpuHeight, "#dfe6ee", "#5b6b7b");
    std::string title =
        socket.numa < 0 ? "NUMA node not known" : absl::StrCat("NUMA node ", socket.numa);
    std::string below;
    for (const NumaNode& node : topology_.numa) {
      if (node.id == socket.numa) {
        below = absl::StrCat("CPUs ", node.cpus);
        title += node.memory_mib > 0 ? absl::StrCat(", ", node.memory_mib >> 10, " GiB") : "";
      }
    }
    Text(x + 10, kCpuY + 19, title, "font-weight=\"bold\"");
    Text(x + 10, kCpuY + 36, Shortened(below, static_cast<size_t>(width) / 7), "fill=\"#44505c\"");
  }

  void DrawGroup(const Group& group, int x) {
    const int width = static_cast<int>(group.Columns()) * kCell - (kCell - kBox);
    const bool has_switch = group.Devices() > 1;
    if (has_switch) {
      Line(x + width / 2, kCpuY + kCpuHeight, x + width / 2, kSwitchY);
      Box(x, kSwitchY, width, kSwitchHeight, "#e8e3f3", "#7a68a6");
      Text(x + width / 2, kSwitchY + 15, "PCIe switch", "text-anchor=\"middle\" fill=\"#4b3d75\"");
    }
    const int from = has_switch ? kSwitchY + kSwitchHeight : kCpuY + kCpuHeight;
    for (size_t i = 0; i < group.nics.size(); ++i) {
      DrawNic(*group.nics[i], x + static_cast<int>(i) * kCell, from);
    }
    for (size_t i = 0; i < group.gpus.size(); ++i) {
      DrawGpu(*group.gpus[i], x + static_cast<int>(i) * kCell, from);
    }
  }

  // A GPU's line passes on the left of the NIC above it.
  void DrawNic(const Nic& nic, int x, int from) {
    constexpr int kIndent = 18;
    const bool down = nic.state != PortState::kActive && nic.state != PortState::kUnknown;
    Line(x + kIndent + (kBox - kIndent) / 2, from, x + kIndent + (kBox - kIndent) / 2, kNicY);
    Box(x + kIndent, kNicY, kBox - kIndent, kNicHeight, nic.rdma ? "#dceafc" : "#eef1f4",
        nic.rdma ? "#2f6fb5" : "#7c8791", down ? "stroke-dasharray=\"4 3\"" : "");
    Text(x + kIndent + 8, kNicY + 20, Shortened(nic.name, 13), "font-weight=\"bold\"");
    const std::string kind = nic.link_layer == LinkLayer::kInfiniBand ? "IB"
                             : nic.link_layer == LinkLayer::kEthernet && nic.rdma
                                 ? "RoCE"
                                 : WordOf(nic.link_layer);
    Text(x + kIndent + 8, kNicY + 38,
         down ? WordOf(nic.state)
              : Shortened(nic.rate_gbps > 0 ? absl::StrCat(nic.rate_gbps, "G ", kind) : kind, 16),
         "font-size=\"11\" fill=\"#44505c\"");
  }

  void DrawGpu(const Gpu& gpu, int x, int from) {
    const bool usable = IsUsable(gpu);
    Line(x + 9, from, x + 9, kGpuY);
    Box(x, kGpuY, kBox, kGpuHeight, usable ? "#dff2df" : "#fbe3e0", usable ? "#3d8b40" : "#c0392b");
    Text(x + 8, kGpuY + 18, DeviceName(gpu), "font-weight=\"bold\"");
    std::string model = absl::StrReplaceAll(ModelName(gpu), {{"GeForce ", ""}, {"Tesla ", ""}});
    Text(x + 8, kGpuY + 35, Shortened(model, 17), "font-size=\"11\"");
    std::string last = gpu.memory_mib > 0 ? absl::StrCat((gpu.memory_mib + 512) >> 10, " GiB") : "";
    if (gpu.mig_enabled) {
      last = absl::StrCat(gpu.mig.size(), " MIG slices");
    } else if (gpu.pcie.most_generation > 0 || gpu.pcie.generation > 0) {
      absl::StrAppend(&last, last.empty() ? "" : ", ", "gen",
                      std::max(gpu.pcie.most_generation, gpu.pcie.generation), " x",
                      gpu.pcie.width);
    }
    Text(x + 8, kGpuY + 52, usable ? last : "cannot be used", "font-size=\"11\" fill=\"#44505c\"");
    middles_[DeviceName(gpu)] = x + kBox / 2;
  }

  void DrawBetweenSockets() {
    for (size_t i = 1; i < cpu_edges_.size(); ++i) {
      Line(cpu_edges_[i - 1].second, kCpuY + kCpuHeight / 2, cpu_edges_[i].first,
           kCpuY + kCpuHeight / 2, "#5b6b7b", 4);
    }
  }

  // Switches as one bar that every linked GPU hangs on, direct links as arcs. The lowest line.
  int DrawNvlinks() {
    int bottom = kSocketBottom;
    int left = 1 << 30, right = 0;
    const int bar = kSocketBottom + 34;
    for (const Gpu& gpu : topology_.gpus) {
      if (gpu.switch_nvlinks > 0) {
        const int x = middles_[DeviceName(gpu)];
        left = std::min(left, x);
        right = std::max(right, x);
        Line(x, kGpuY + kGpuHeight, x, bar, "#3d8b40", 4);
        Text(x + 6, bar - 9, absl::StrCat("NV", gpu.switch_nvlinks),
             "font-size=\"11\" fill=\"#2c6b2f\"");
        bottom = bar + 26;
      }
    }
    if (right > 0) {
      const int half = kBox / 2;
      Box(left - half, bar, right - left + kBox, 26, "#3d8b40", "#2c6b2f");
      Text((left + right) / 2, bar + 17, "NVSwitch",
           "text-anchor=\"middle\" fill=\"#ffffff\" font-weight=\"bold\"");
    }
    for (const Link& link : topology_.links) {
      if (link.nvlinks > 0) {
        bottom = std::max(bottom, DrawArc(link));
      }
    }
    return bottom;
  }

  int DrawArc(const Link& link) {
    const int a = middles_[link.a], b = middles_[link.b];
    const int from = kGpuY + kGpuHeight;
    const int depth = from + 60 + std::abs(b - a) / 6;
    absl::StrAppendFormat(
        &boxes_,
        "<path d=\"M %d %d C %d %d %d %d %d %d\" fill=\"none\" stroke=\"#3d8b40\" "
        "stroke-width=\"3\"/>\n",
        a, from, a, depth, b, depth, b, from);
    const int lowest = from + (depth - from) * 3 / 4;
    Text((a + b) / 2, lowest + 15, absl::StrCat("NV", link.nvlinks),
         "text-anchor=\"middle\" font-size=\"11\" fill=\"#2c6b2f\" font-weight=\"bold\"");
    return lowest + 18;
  }

  void DrawTitleAndLegend(int height) {
    Text(kMargin, 32, topology_.node.empty() ? "node" : topology_.node,
         "font-size=\"20\" font-weight=\"bold\"");
    std::string below = topology_.cpu;
    absl::StrAppend(
        &below, topology_.hypervisor.empty() ? "" : ", in a virtual machine",
        below.empty() && topology_.hypervisor.empty() ? "" : ", ",
        topology_.driver.empty() ? "no NVIDIA driver" : absl::StrCat("driver ", topology_.driver));
    Text(kMargin, 54, below, "fill=\"#44505c\"");
    Text(
        kMargin, height - 18,
        "green: GPUs and NVLinks   blue: RDMA ports   grey: other NICs, PCIe   dashed: down   red: "
        "cannot be used",
        "font-size=\"11\" fill=\"#6b7782\" xml:space=\"preserve\"");
  }

  const Topology& topology_;
  std::vector<Socket> sockets_;
  std::vector<std::pair<int, int>> cpu_edges_;
  std::map<std::string, int> middles_;
  std::string lines_, boxes_;  // boxes lie above lines
};

}  // namespace

std::string TopologyPicture(const Topology& topology) { return Picture(topology).Draw(); }

}  // namespace trainctl

#include "launcher/preflight_findings.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;
using Verdict = PreflightFinding::Verdict;

// Below this share of what the way between the GPUs should carry, something is wrong with it.
constexpr double kLeastShare = 0.5;

std::string Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
double Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

struct Lines {
  std::vector<Json> objects;
  std::string begun;  // the last thing that was begun
  std::string error;
  std::string rest;  // the last line that is none of ours
};

Lines Read(const ChildOutput& output) {
  Lines lines;
  for (const absl::string_view line : absl::StrSplit(output.text, '\n')) {
    const Json object = ParseOrderedJson(line);
    if (!object.is_object()) {
      if (!absl::StripAsciiWhitespace(line).empty()) lines.rest = std::string(line);
    } else if (object.contains("begin")) {
      lines.begun = Text(object, "begin");
    } else if (object.contains("error")) {
      lines.error = Text(object, "error");
    } else {
      lines.objects.push_back(object);
    }
  }
  return lines;
}

// Of a child that did not get through what it began.
PreflightFinding Stopped(const ChildOutput& output, const Lines& lines) {
  PreflightFinding finding;
  finding.check = lines.begun.empty() ? "start" : lines.begun;
  if (output.end == ChildOutput::End::kHung) {
    finding.verdict = Verdict::kHung;
    finding.found = output.how;
  } else {
    finding.verdict = Verdict::kFailed;
    finding.found = !lines.error.empty() ? lines.error
                    : lines.rest.empty() ? output.how
                                         : absl::StrCat(output.how, ": ", lines.rest);
  }
  return finding;
}

std::string NameOf(const PreflightResult& result, int device) {
  for (const PreflightGpu& gpu : result.gpus) {
    if (gpu.device == device) return gpu.name;
  }
  return absl::StrCat("GPU", device);
}

std::string Bytes(double bytes) { return absl::StrFormat("%.0f MiB", bytes / (1 << 20)); }

std::string PeerRemedy(const Topology& topology) {
  std::string remedy;
  if (topology.acs == Answer::kYes) {
    absl::StrAppend(&remedy, "ACS redirects traffic between peers: turn it off in the firmware; ");
  }
  if (topology.iommu == Answer::kYes) {
    absl::StrAppend(&remedy, "the IOMMU translates: boot with iommu=pt; ");
  }
  if (remedy.empty()) {
    remedy = "see ACS, IOMMU and whether the driver is one patched for peer access; ";
  }
  return absl::StrCat(remedy, "until then NCCL_P2P_DISABLE=1");
}

}  // namespace

const char* WordOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRight:
      return "right";
    case Verdict::kSlow:
      return "slow";
    case Verdict::kWrong:
      return "wrong";
    case Verdict::kHung:
      return "hung";
    case Verdict::kFailed:
      break;
  }
  return "failed";
}

absl::StatusOr<std::vector<PreflightGpu>> ReadGpus(const ChildOutput& output,
                                                   const Topology& topology) {
  const Lines lines = Read(output);
  if (output.end != ChildOutput::End::kDone) {
    const PreflightFinding stopped = Stopped(output, lines);
    return absl::UnavailableError(
        stopped.verdict == Verdict::kHung
            ? absl::StrCat("the driver does not answer (", stopped.found,
                           "); see dmesg for an Xid, and restart the machine")
            : stopped.found);
  }
  std::vector<PreflightGpu> gpus;
  for (const Json& object : lines.objects) {
    PreflightGpu gpu;
    gpu.device = static_cast<int>(Number(object, "gpu"));
    gpu.name = absl::StrCat("GPU", gpu.device);
    gpu.model = Text(object, "name");
    gpu.pci = Text(object, "pci");
    gpu.uuid = Text(object, "uuid");
    for (const Gpu& known : topology.gpus) {
      if (known.pci == gpu.pci && !gpu.pci.empty()) gpu.name = DeviceName(known);
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

void AddMemory(const ChildOutput& output, PreflightResult* result) {
  const Lines lines = Read(output);
  for (const Json& object : lines.objects) {
    PreflightFinding finding;
    finding.check =
        absl::StrCat("memory of ", NameOf(*result, static_cast<int>(Number(object, "memory"))));
    finding.gigabytes_per_second = Number(object, "gigabytes_per_second");
    const double wrong = Number(object, "wrong");
    finding.found = absl::StrCat(Bytes(Number(object, "bytes")), " written and read back");
    if (wrong > 0) {
      finding.verdict = Verdict::kWrong;
      absl::StrAppendFormat(&finding.found, ", %.0f words came back wrong", wrong);
      finding.remedy = "the card is faulty: see nvidia-smi -q -d ECC, and take it out";
    }
    result->findings.push_back(std::move(finding));
  }
  if (output.end != ChildOutput::End::kDone) {
    PreflightFinding stopped = Stopped(output, lines);
    stopped.remedy = "see dmesg for an Xid, and nvidia-smi for who else uses the GPU";
    result->findings.push_back(std::move(stopped));
  }
}

int AddCopies(const ChildOutput& output, const Topology& topology, PreflightResult* result) {
  const Lines lines = Read(output);
  int pairs = 0;
  for (const Json& object : lines.objects) {
    ++pairs;
    const std::string way =
        absl::StrCat(NameOf(*result, static_cast<int>(Number(object, "copy"))), " to ",
                     NameOf(*result, static_cast<int>(Number(object, "to"))));
    const bool peer_access = Number(object, "peer_access") > 0;
    const double wrong = Number(object, "wrong");
    PreflightFinding finding;
    finding.check = absl::StrCat("copy ", way);
    finding.gigabytes_per_second = Number(object, "gigabytes_per_second");
    finding.found = absl::StrCat(Bytes(Number(object, "bytes")),
                                 peer_access ? " by peer access" : " through the CPU's memory");
    if (wrong > 0) {
      finding.verdict = Verdict::kWrong;
      absl::StrAppendFormat(&finding.found, ", %.0f words arrived wrong", wrong);
      finding.remedy = peer_access ? PeerRemedy(topology)
                                   : "a card or its slot is faulty: see dmesg for AER and Xid";
      if (peer_access) {
        result->bad_peer_access.push_back(absl::StrCat("a copy from ", way, " came out wrong"));
      }
    }
    result->findings.push_back(std::move(finding));
  }
  if (output.end == ChildOutput::End::kDone) return pairs;
  PreflightFinding stopped = Stopped(output, lines);
  stopped.remedy = PeerRemedy(topology);
  if (stopped.verdict == Verdict::kHung && absl::StartsWith(stopped.check, "copy ")) {
    result->bad_peer_access.push_back(absl::StrCat("a ", stopped.check, " hung"));
  }
  result->findings.push_back(std::move(stopped));
  return pairs + 1;
}

PreflightFinding ReadCollective(const std::vector<ChildOutput>& outputs, double expected,
                                bool without_peers, PreflightResult* result) {
  PreflightFinding finding;
  finding.check =
      absl::StrCat("all-reduce over ", outputs.size(), outputs.size() == 1 ? " GPU" : " GPUs",
                   without_peers ? " with NCCL_P2P_DISABLE=1" : "");
  double bytes = 0, wrong = 0, slowest = 0, microseconds = 0;
  for (const ChildOutput& output : outputs) {
    const Lines lines = Read(output);
    for (const Json& object : lines.objects) {
      result->nccl = Text(object, "nccl");
      bytes = Number(object, "bytes");
      wrong += Number(object, "wrong");
      const double busbw = Number(object, "busbw");
      slowest = slowest == 0 ? busbw : std::min(slowest, busbw);
      microseconds = std::max(microseconds, Number(object, "microseconds"));
    }
    // Of several ranks, whoever failed says more than those who then waited for it.
    if (output.end != ChildOutput::End::kDone &&
        (finding.verdict == Verdict::kRight ||
         (finding.verdict == Verdict::kHung && output.end == ChildOutput::End::kFailed))) {
      const PreflightFinding stopped = Stopped(output, lines);
      finding.verdict = stopped.verdict;
      finding.found = absl::StrCat(stopped.check, ": ", stopped.found);
    }
  }
  if (finding.verdict != Verdict::kRight) {
    finding.remedy =
        "see the size of /dev/shm and the lock limit (trainctl topo --explain), and what "
        "NCCL_DEBUG=WARN says";
    return finding;
  }
  finding.gigabytes_per_second = slowest;
  finding.found = absl::StrCat(Bytes(bytes), " against a known sum");
  if (wrong > 0) {
    finding.verdict = Verdict::kWrong;
    absl::StrAppendFormat(&finding.found, ", %.0f sums are wrong", wrong);
    finding.remedy = "no worker can train on this: run preflight on fewer GPUs to find the one";
  } else if (outputs.size() > 1 && expected > 0) {
    absl::StrAppendFormat(&finding.found, ", about %.0f GB/s expected", expected);
    if (slowest < kLeastShare * expected) {
      finding.verdict = Verdict::kSlow;
      finding.remedy =
          "see PCIe generation and width, and the way between the GPUs, by trainctl topo; "
          "another program may use them";
    }
  }
  return finding;
}

bool IsFit(const PreflightResult& result, bool peers_off) {
  if (!peers_off && !result.bad_peer_access.empty()) return false;
  return std::all_of(result.findings.begin(), result.findings.end(), [&](const auto& finding) {
    const bool about_peers = peers_off && absl::StartsWith(finding.check, "copy ");
    return about_peers || finding.verdict == Verdict::kRight || finding.verdict == Verdict::kSlow;
  });
}

std::string PreflightText(const PreflightResult& result, const TransportPlan& plan, bool fit) {
  std::string out;
  for (const PreflightFinding& finding : result.findings) {
    std::string speed;
    if (finding.gigabytes_per_second > 0) {
      speed = absl::StrFormat(", %.1f GB/s", finding.gigabytes_per_second);
    }
    absl::StrAppendFormat(&out, "%-7s %s: %s%s\n", WordOf(finding.verdict), finding.check,
                          finding.found, speed);
    if (!finding.remedy.empty()) absl::StrAppend(&out, "          ", finding.remedy, "\n");
  }
  if (result.gpus.size() == 1) {
    absl::StrAppend(&out,
                    "        no pair of GPUs is here, so that no way between two was proved\n");
  }
  for (const NcclSetting& setting : plan.settings) {
    if (setting.name == "NCCL_P2P_DISABLE" && setting.who != NcclSetting::Who::kLeftAlone) {
      absl::StrAppend(&out, "follows ", setting.name, "=", setting.value, ", because ",
                      setting.reason, "\n");
    }
  }
  return absl::StrCat(out, fit ? "fit\n" : "not fit\n");
}

Json PreflightDocument(const PreflightResult& result, const TransportPlan& plan, bool fit) {
  Json document = {{"schema", 1}, {"type", "preflight"}, {"fit", fit}, {"nccl", result.nccl}};
  document["gpus"] = Json::array();
  for (const PreflightGpu& gpu : result.gpus) {
    document["gpus"].push_back({{"device", gpu.device},
                                {"name", gpu.name},
                                {"model", gpu.model},
                                {"pci", gpu.pci},
                                {"uuid", gpu.uuid}});
  }
  document["checks"] = Json::array();
  for (const PreflightFinding& finding : result.findings) {
    Json check = {
        {"check", finding.check}, {"verdict", WordOf(finding.verdict)}, {"found", finding.found}};
    if (finding.gigabytes_per_second > 0) {
      check["gigabytes_per_second"] = finding.gigabytes_per_second;
    }
    if (!finding.remedy.empty()) check["remedy"] = finding.remedy;
    document["checks"].push_back(std::move(check));
  }
  document["settings"] = PlanDocument(plan)["settings"];
  return document;
}

}  // namespace trainctl

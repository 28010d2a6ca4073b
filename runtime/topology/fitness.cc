#include "runtime/topology/fitness.h"

#include <algorithm>
#include <array>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace trainctl {
namespace {

bool MatchesInterface(absl::string_view pattern, bool exact, const std::string& interface) {
  return exact ? interface == pattern : absl::StartsWith(interface, pattern);
}

// "570.86.15" as numbers.
std::vector<int> Version(absl::string_view text) {
  std::vector<int> numbers;
  for (const absl::string_view part : absl::StrSplit(text, '.')) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number)) break;
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

absl::Status CheckSameNode(const Topology& written, const Topology& here) {
  if (!written.node.empty() && !here.node.empty() && written.node != here.node) {
    return absl::FailedPreconditionError(absl::StrCat("it is of node ", written.node,
                                                      ", and this is ", here.node,
                                                      "; write one here: trainctl topo "
                                                      "--yaml"));
  }
  const auto uuids = [](const Topology& topology) {
    std::set<std::string> all;
    for (const Gpu& gpu : topology.gpus) {
      all.insert(gpu.uuid);
      for (const MigSlice& slice : gpu.mig) all.insert(slice.uuid);
    }
    return all;
  };
  const std::set<std::string> there = uuids(written), now = uuids(here);
  for (const std::string& uuid : there) {
    if (now.count(uuid) != 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("it has GPU ", uuid,
                     ", which this machine does not have (any more); write a "
                     "new one: trainctl topo --yaml"));
  }
  for (const std::string& uuid : now) {
    if (there.count(uuid) != 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "it lacks GPU ", uuid, " of this machine; write a new one: trainctl topo --yaml"));
  }
  return absl::OkStatus();
}

absl::Status CheckSocketInterface(const std::string& wanted,
                                  const std::vector<std::string>& interfaces) {
  if (wanted.empty() || interfaces.empty()) return absl::OkStatus();
  absl::string_view rest = wanted;
  const bool exclude = absl::ConsumePrefix(&rest, "^");
  const bool exact = absl::ConsumePrefix(&rest, "=");
  const std::vector<std::string> patterns = absl::StrSplit(rest, ',', absl::SkipEmpty());
  for (const std::string& interface : interfaces) {
    const bool named = std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) {
      return MatchesInterface(p.substr(0, p.find(':')), exact, interface);
    });
    if (named != exclude) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("NCCL_SOCKET_IFNAME=", wanted, " fits no interface of this machine, which has ",
                   absl::StrJoin(interfaces, ", "), "; correct it, or leave it unset"));
}

absl::Status CheckDriver(const Topology& topology, const std::string& toolkit) {
  // The oldest driver that serves any program built for that CUDA, in NVIDIA's release notes.
  struct Floor {
    int cuda;
    const char* driver;
  };
  static constexpr std::array<Floor, 3> kFloors{
      {{11, "450.80.02"}, {12, "525.60.13"}, {13, "580.65.06"}}};
  const std::vector<int> wanted = Version(toolkit);
  const std::vector<int> driver = Version(topology.driver);
  const std::vector<int> served = Version(topology.cuda);
  if (wanted.empty()) return absl::OkStatus();
  for (const Floor& floor : kFloors) {
    if (floor.cuda != wanted[0]) continue;
    // A library for forward compatibility makes an older driver serve a newer CUDA, and says so.
    const bool serves = served.empty() ? driver >= Version(floor.driver) : served[0] >= wanted[0];
    if (serves || (served.empty() && driver.empty())) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the NVIDIA driver ", topology.driver, " serves ",
        topology.cuda.empty() ? "no newer CUDA" : absl::StrCat("CUDA ", topology.cuda, " at most"),
        ", and the program is built for CUDA ", toolkit, ", which needs driver ", floor.driver,
        " or later; update the driver, or use a build for CUDA ",
        served.empty() ? wanted[0] - 1 : served[0]));
  }
  return absl::OkStatus();
}

}  // namespace trainctl

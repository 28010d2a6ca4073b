#include "runtime/topology/xid.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

constexpr char kReset[] = "reset the GPU (nvidia-smi --gpu-reset) or reboot the node";
constexpr char kReboot[] = "reboot the node; if it comes again, have the hardware looked at";
constexpr char kReplace[] = "reset the GPU; if it comes again, replace it";

// By NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors): "restart the application" is
// kProgram where the program's own access is wrong, kRestart where the hardware erred.
constexpr Xid kKnown[] = {
    {8, XidMeaning::kProgram, "GPU stopped processing", ""},
    {13, XidMeaning::kProgram, "graphics engine exception, as by an access out of bounds", ""},
    {31, XidMeaning::kProgram, "GPU memory page fault, as by an access to what is not allocated",
     ""},
    {32, XidMeaning::kRestart, "corrupted push buffer stream", ""},
    {43, XidMeaning::kProgram, "GPU stopped processing for the program", ""},
    {45, XidMeaning::kNothing, "the program's channels were cleaned up", ""},
    {46, XidMeaning::kUnfit, "GPU stopped processing", kReset},
    {48, XidMeaning::kUnfit, "double bit ECC error", kReplace},
    {54, XidMeaning::kUnfit, "auxiliary power is not connected", "connect it"},
    {62, XidMeaning::kUnfit, "internal micro-controller halt", kReset},
    {63, XidMeaning::kNothing, "a memory row was remapped", ""},
    {64, XidMeaning::kUnfit, "a memory row could not be remapped", kReplace},
    {68, XidMeaning::kRestart, "video processor exception", ""},
    {69, XidMeaning::kProgram, "graphics engine class error", ""},
    {74, XidMeaning::kUnfit, "NVLink error", kReset},
    {79, XidMeaning::kUnfit, "GPU has fallen off the bus", kReboot},
    {94, XidMeaning::kRestart, "contained ECC error", ""},
    {95, XidMeaning::kUnfit, "uncontained ECC error", kReset},
    {109, XidMeaning::kUnfit, "context switch timed out", kReset},
    {110, XidMeaning::kUnfit, "security fault", kReset},
    {119, XidMeaning::kUnfit, "the GPU's system processor (GSP) does not answer", kReset},
    {120, XidMeaning::kUnfit, "error of the GPU's system processor (GSP)", kReset},
    {136, XidMeaning::kUnfit, "link training failed", kReset},
    {140, XidMeaning::kUnfit, "unrecovered ECC error", kReset},
    {143, XidMeaning::kUnfit, "GPU initialisation failed", kReset},
    {151, XidMeaning::kUnfit, "key rotation error", kReboot},
    {155, XidMeaning::kUnfit, "NVLink software error", kReset},
    {156, XidMeaning::kUnfit, "resources of a GPU were retired", kReset},
    {158, XidMeaning::kUnfit, "fatal time-out of the GPU", kReset},
};

}  // namespace

Xid FindXid(int64_t number) {
  const auto known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                  [number](const Xid& xid) { return xid.number == number; });
  if (known != std::end(kKnown)) return *known;
  return {static_cast<int>(number), XidMeaning::kNothing, "see NVIDIA's Xid catalogue", ""};
}

std::string DescribeXid(const Xid& xid) {
  return absl::StrCat("Xid ", xid.number, " (", xid.what, ")",
                      xid.remedy[0] == '\0' ? "" : absl::StrCat(": ", xid.remedy));
}

}  // namespace trainctl

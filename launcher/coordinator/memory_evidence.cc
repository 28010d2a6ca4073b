#include "launcher/coordinator/memory_evidence.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "launcher/coordinator/error_json.h"

namespace trainctl {
namespace {

bool ContainsOneOf(absl::string_view text, std::initializer_list<absl::string_view> needles) {
  return std::any_of(needles.begin(), needles.end(),
                     [&](absl::string_view needle) { return absl::StrContains(text, needle); });
}

// Of the program: words of CUDA, its libraries and NCCL about the memory of a GPU. `lower` is in
// small letters.
bool SaysGpuMemory(absl::string_view lower) {
  // torch has no other OutOfMemoryError than that of a device.
  if (ContainsOneOf(lower, {"cudaerrormemoryallocation", "cuda_error_out_of_memory",
                            "cublas_status_alloc_failed", "cudnn_status_alloc_failed",
                            "failed to cuda calloc", "failed to cuda malloc",
                            "torch.outofmemoryerror", "torch.cuda.outofmemoryerror",
                            "c10::outofmemoryerror", "c10::cudaoutofmemoryerror"})) {
    return true;
  }
  return absl::StrContains(lower, "out of memory") &&
         ContainsOneOf(lower, {"cuda", "nccl", "gpu", "hip "});
}

bool SaysMemory(absl::string_view lower) {
  return SaysGpuMemory(lower) ||
         ContainsOneOf(lower, {"out of memory", "outofmemoryerror", "memoryerror", "std::bad_alloc",
                               "cannot allocate memory", "can't allocate memory"});
}

// An error of a library that a lack of memory may be behind, and that does not say so itself.
bool MayFollow(absl::string_view error) {
  const std::string lower = absl::AsciiStrToLower(error);
  return error.empty() || ContainsOneOf(lower, {"nccl", "cuda", "cublas", "cudnn"});
}

}  // namespace

std::optional<MemoryEvidence> FindMemoryEvidence(absl::string_view message, absl::string_view error,
                                                 absl::string_view tail) {
  const std::string kernel = absl::AsciiStrToLower(message);
  if (SaysMemory(kernel) || ContainsOneOf(kernel, {"oom-kill", "oom_kill"})) {
    return MemoryEvidence{false, std::string(message)};
  }
  if (const std::string lower = absl::AsciiStrToLower(error); SaysMemory(lower)) {
    return MemoryEvidence{SaysGpuMemory(lower), std::string(error)};
  }
  std::optional<MemoryEvidence> found;
  for (absl::string_view line : absl::StrSplit(tail, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    const std::string lower = absl::AsciiStrToLower(line);
    if (!SaysMemory(lower) || (!MayFollow(error) && !IsErrorLine(line))) continue;
    const bool gpu = SaysGpuMemory(lower);
    // "terminate called …" is followed by a line that may say whose memory it was.
    if (!found || gpu || !found->gpu) found = MemoryEvidence{gpu, std::string(line)};
  }
  return found;
}

}  // namespace trainctl

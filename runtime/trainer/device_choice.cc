#include "runtime/trainer/device_choice.h"

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

constexpr int kAmpere = 80;  // the first with bfloat16 and TF32
constexpr int kVolta = 70;   // the first with tensor cores, for float16

}  // namespace

const char* PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kAuto:
      return "auto";
    case Precision::kFp32:
      return "fp32";
    case Precision::kTf32:
      return "tf32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
  }
  return "?";
}

absl::StatusOr<DeviceChoice> ChooseDevice(Device wanted, Precision precision, const FoundGpu& gpu,
                                          const std::string& unsupported) {
  const std::string why_not =
      gpu.number < 0 ? absl::StrCat("there is no GPU: ", gpu.text) : unsupported;
  if (wanted == Device::kCuda && !why_not.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("train on a GPU, as train.device says: ", why_not));
  }
  if (wanted == Device::kCpu || !why_not.empty()) {
    if (precision != Precision::kAuto && precision != Precision::kFp32) {
      return absl::InvalidArgumentError(absl::StrCat(
          "train.precision ", PrecisionName(precision), " needs a GPU; the CPU trains in fp32",
          wanted == Device::kCpu ? ", and train.device is cpu" : absl::StrCat(", and ", why_not)));
    }
    const bool left_idle = wanted == Device::kAuto && gpu.number >= 0;
    return DeviceChoice{false, Precision::kFp32,
                        left_idle ? absl::StrCat("trains on the CPU: ", why_not) : ""};
  }
  const bool wants_ampere = precision == Precision::kBf16 || precision == Precision::kTf32;
  if (wants_ampere && gpu.sm < kAmpere) {
    return absl::InvalidArgumentError(absl::StrCat(
        "train.precision ", PrecisionName(precision), ": ", gpu.text, " (compute capability ",
        gpu.sm / 10, ".", gpu.sm % 10, ") cannot do it, 8.0 and later can; use auto"));
  }
  if (precision != Precision::kAuto) {
    return DeviceChoice{true, precision,
                        absl::StrCat("trains on ", gpu.text, " in ", PrecisionName(precision),
                                     ", as train.precision says")};
  }
  precision = gpu.sm >= kAmpere  ? Precision::kBf16
              : gpu.sm >= kVolta ? Precision::kFp16
                                 : Precision::kFp32;
  const char* why = gpu.sm >= kAmpere ? "its tensor cores compute in it, and it needs no loss scale"
                    : gpu.sm >= kVolta ? "its tensor cores compute in it"
                                       : "it has no tensor cores";
  return DeviceChoice{
      true, precision,
      absl::StrCat("trains on ", gpu.text, " in ", PrecisionName(precision), ": ", why)};
}

}  // namespace trainctl

#include "runtime/worker/collective_shape.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

std::string Describe(const CollectiveShape& shape) {
  std::string text = absl::StrCat("number ", shape.number, ", ", CollectiveOpName(shape.op), " of ",
                                  shape.bytes, " bytes");
  if (shape.type == ElementType::kFloat32) absl::StrAppend(&text, " of float32");
  if (shape.type == ElementType::kFloat64) absl::StrAppend(&text, " of float64");
  if (shape.type == ElementType::kFloat16) absl::StrAppend(&text, " of float16");
  if (shape.type == ElementType::kBFloat16) absl::StrAppend(&text, " of bfloat16");
  return text;
}

}  // namespace

absl::Status CompareShapes(int rank, const CollectiveShape& own, int peer,
                           const CollectiveShape& theirs) {
  if (own == theirs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ranks call different collectives: rank ", rank, " is at ", Describe(own),
                   ", rank ", peer, " at ", Describe(theirs),
                   "; every rank must call the same ones with the same sizes in the same order"));
}

}  // namespace trainctl

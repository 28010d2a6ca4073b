#include "runtime/trainer/dataset.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/trainer/image_data.h"
#include "runtime/trainer/token_data.h"

namespace trainctl {

absl::StatusOr<OpenedData> OpenData(const DataOptions& options) {
  switch (options.kind) {
    case DataOptions::Kind::kFashionMnist: {
      OpenedData data;
      int64_t test_inputs = 0;
      ASSIGN_OR_RETURN(data.train, OpenImages(options.path, "train", &data.inputs));
      ASSIGN_OR_RETURN(data.evaluation, OpenImages(options.path, "t10k", &test_inputs));
      if (test_inputs != data.inputs) {
        return absl::InvalidArgumentError(absl::StrCat(options.path, ": training images have ",
                                                       data.inputs, " pixels, test images ",
                                                       test_inputs));
      }
      data.classes = kImageClasses;
      return data;
    }
    case DataOptions::Kind::kText: {
      ASSIGN_OR_RETURN(auto source, OpenText(options.path));
      return SplitTokens(std::move(source), options.path, options.context, options.validation);
    }
    case DataOptions::Kind::kTokens: {
      ASSIGN_OR_RETURN(auto source, OpenTokenFile(options.path));
      return SplitTokens(std::move(source), options.path, options.context, options.validation);
    }
  }
  CHECK(false);
}

}  // namespace trainctl

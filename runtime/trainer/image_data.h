// Labelled images from IDX files, normalised to mean 0 and deviation 1 over the training set of
// Fashion-MNIST (mean 0.2860, deviation 0.3530).
#ifndef TRAINCTL_RUNTIME_TRAINER_IMAGE_DATA_H_
#define TRAINCTL_RUNTIME_TRAINER_IMAGE_DATA_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/trainer/dataset.h"

namespace trainctl {

inline constexpr int kImageClasses = 10;

// The data set in files FOLDER/PREFIX-images-idx3-ubyte and FOLDER/PREFIX-labels-idx1-ubyte, plain
// or .gz. `inputs` receives the number of pixels of an image. A file that has the name and length
// of Fashion-MNIST's must also have its digest; files of other lengths are the user's own.
absl::StatusOr<std::unique_ptr<Dataset>> OpenImages(const std::string& folder,
                                                    const std::string& prefix, int64_t* inputs);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_IMAGE_DATA_H_

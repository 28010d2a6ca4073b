#include "runtime/trainer/image_data.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/trainer/idx.h"

namespace trainctl {
namespace {

constexpr float kMean = 0.2860f;
constexpr float kDeviation = 0.3530f;

struct KnownFile {
  absl::string_view name;
  size_t elements;
  absl::string_view digest;  // of the unpacked file
};
constexpr KnownFile kFashionMnist[] = {
    {"train-images-idx3-ubyte", 47040000, "xxh3-128:e5a664e2905b9295ca72265d7c26283b"},
    {"train-labels-idx1-ubyte", 60000, "xxh3-128:48a2c630b815ef5a775518db990ebf87"},
    {"t10k-images-idx3-ubyte", 7840000, "xxh3-128:00620a3fbea59460a60baf710224b311"},
    {"t10k-labels-idx1-ubyte", 10000, "xxh3-128:ca8383985fa2cbc620515cb4512a5b03"},
};

absl::StatusOr<IdxArray> ReadChecked(const std::string& folder, const std::string& name,
                                     int dimensions) {
  absl::StatusOr<IdxArray> array = ReadIdx(JoinPath(folder, name), dimensions);
  if (absl::IsNotFound(array.status())) {
    return absl::NotFoundError(
        absl::StrCat(array.status().message(),
                     "; install the data set (apt-get install dataset-fashion-mnist "
                     "puts it in /usr/share/datasets/fashion-mnist) or correct train.data.path"));
  }
  RETURN_IF_ERROR(array.status());
  for (const KnownFile& known : kFashionMnist) {
    if (known.name == name && known.elements == array->values.size() &&
        known.digest != array->digest) {
      return absl::DataLossError(
          absl::StrCat(array->path, ": damaged, the digest of its content is ", array->digest,
                       ", Fashion-MNIST's is ", known.digest, "; install the data set again"));
    }
  }
  return array;
}

class ImageDataset final : public Dataset {
 public:
  ImageDataset(IdxArray images, IdxArray labels, int64_t inputs)
      : images_(std::move(images.values)), labels_(std::move(labels.values)), inputs_(inputs) {
    for (int value = 0; value < 256; ++value) {
      normalised_[value] = (static_cast<float>(value) / 255.0f - kMean) / kDeviation;
    }
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t targets_per_sample() const override { return 1; }

  absl::StatusOr<Batch> Read(absl::Span<const int64_t> ids, BatchMemory& memory) const override {
    memory.features.resize(ids.size() * static_cast<size_t>(inputs_));
    memory.targets.resize(ids.size());
    memory.ids.assign(ids.begin(), ids.end());
    float* out = memory.features.data();
    for (size_t i = 0; i < ids.size(); ++i) {
      const uint8_t* pixel = images_.data() + ids[i] * inputs_;
      for (int64_t p = 0; p < inputs_; ++p) *out++ = normalised_[pixel[p]];
      memory.targets[i] = labels_[ids[i]];
    }
    Batch batch;
    batch.count = static_cast<int64_t>(ids.size());
    batch.features = memory.features.data();
    batch.targets = memory.targets.data();
    batch.ids = memory.ids.data();
    return batch;
  }

 private:
  std::vector<uint8_t> images_;
  std::vector<uint8_t> labels_;
  int64_t inputs_;
  float normalised_[256];
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenImages(const std::string& folder,
                                                    const std::string& prefix, int64_t* inputs) {
  ASSIGN_OR_RETURN(IdxArray images, ReadChecked(folder, prefix + "-images-idx3-ubyte", 3));
  ASSIGN_OR_RETURN(IdxArray labels, ReadChecked(folder, prefix + "-labels-idx1-ubyte", 1));
  if (images.shape[0] != labels.shape[0]) {
    return absl::InvalidArgumentError(absl::StrCat(images.path, " has ", images.shape[0],
                                                   " images, ", labels.path, " has ",
                                                   labels.shape[0], " labels"));
  }
  if (images.values.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(images.path, ": holds no pixels"));
  }
  for (size_t i = 0; i < labels.values.size(); ++i) {
    if (labels.values[i] >= kImageClasses) {
      return absl::InvalidArgumentError(absl::StrCat(labels.path, ": label ", labels.values[i],
                                                     " of sample ", i, " is out of range 0..",
                                                     kImageClasses - 1));
    }
  }
  *inputs = images.shape[1] * images.shape[2];
  return std::make_unique<ImageDataset>(std::move(images), std::move(labels), *inputs);
}

}  // namespace trainctl

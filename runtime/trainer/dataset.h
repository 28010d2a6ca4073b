// Samples of a data set, numbered from 0, and the place where each kind of data is opened.
#ifndef TRAINCTL_RUNTIME_TRAINER_DATASET_H_
#define TRAINCTL_RUNTIME_TRAINER_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/trainer/model.h"

namespace trainctl {

// What a Batch points to. Reused from batch to batch.
struct BatchMemory {
  std::vector<float> features;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int64_t> ids;
};

// Thread-safe after construction.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;                // samples, at least 1
  virtual int64_t targets_per_sample() const = 0;  // what a loss is averaged over: 1, or context
  // The samples with these numbers, each in [0, size()), in this order. The batch is valid until
  // `memory` is used again. Fails if the data turns out damaged while it is read.
  virtual absl::StatusOr<Batch> Read(absl::Span<const int64_t> ids, BatchMemory& memory) const = 0;
};

struct DataOptions {
  enum class Kind {
    kFashionMnist,  // path: folder with the four IDX files, plain or .gz
    kText,          // path: a UTF-8 file; tokens are its bytes
    kTokens,        // path: a token file, see token_data.h
  };
  Kind kind = Kind::kFashionMnist;
  std::string path;
  double validation = 0.1;  // text, tokens: the share at the end that is not trained on
  int64_t context = 0;      // text, tokens: targets of one sample
};

struct OpenedData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> evaluation;
  const char* evaluation_name = "test";  // or "validation"
  int64_t inputs = 0;                    // features of a sample; 0: tokens
  int64_t classes = 0;                   // of targets: classes, or the vocabulary
};

// Errors name the file, say what was found and what to do. Reads and checks images and text whole;
// of a token file only the header, its tokens are checked as they are read.
absl::StatusOr<OpenedData> OpenData(const DataOptions& options);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_DATASET_H_

#include "runtime/trainer/token_data.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

class WindowDataset final : public Dataset {
 public:
  WindowDataset(std::shared_ptr<const TokenSource> source, int64_t begin, int64_t end,
                int64_t context)
      : source_(std::move(source)),
        begin_(begin),
        windows_((end - begin - 1) / context),
        context_(context) {}

  int64_t size() const override { return windows_; }
  int64_t targets_per_sample() const override { return context_; }

  absl::StatusOr<Batch> Read(absl::Span<const int64_t> ids, BatchMemory& memory) const override {
    const size_t context = static_cast<size_t>(context_);
    memory.tokens.resize(ids.size() * context + 1);
    memory.targets.resize(ids.size() * context);
    memory.ids.assign(ids.begin(), ids.end());
    for (size_t i = 0; i < ids.size(); ++i) {
      int32_t* tokens = memory.tokens.data() + i * context;
      int32_t* targets = memory.targets.data() + i * context;
      // The window's last token falls on the next window's first place, which is written after.
      RETURN_IF_ERROR(source_->Read(begin_ + ids[i] * context_, context_ + 1, tokens));
      for (size_t t = 0; t < context; ++t) targets[t] = tokens[t + 1];
    }
    Batch batch;
    batch.count = static_cast<int64_t>(ids.size());
    batch.tokens = memory.tokens.data();
    batch.targets = memory.targets.data();
    batch.ids = memory.ids.data();
    return batch;
  }

 private:
  std::shared_ptr<const TokenSource> source_;
  int64_t begin_;
  int64_t windows_;
  int64_t context_;
};

}  // namespace

absl::StatusOr<OpenedData> SplitTokens(std::shared_ptr<const TokenSource> source,
                                       const std::string& name, int64_t context,
                                       double validation) {
  CHECK(context >= 1);
  const int64_t size = source->size();
  const int64_t held_out = static_cast<int64_t>(static_cast<double>(size) * validation);
  const int64_t train = size - held_out;
  if (train < context + 1 || held_out < context + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", size, " tokens make ", train, " for training and ", held_out,
                     " for validation, each needs at least context + 1 = ", context + 1,
                     "; give more data, a smaller context or another share for validation"));
  }
  OpenedData data;
  data.classes = source->vocabulary();
  data.evaluation_name = "validation";
  data.train = std::make_unique<WindowDataset>(source, 0, train, context);
  data.evaluation = std::make_unique<WindowDataset>(source, train, size, context);
  return data;
}

}  // namespace trainctl

#include "runtime/trainer/evaluation.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/worker/sampler.h"

namespace trainctl {
namespace {

constexpr int64_t kDefaultAtOnce = 256;

}  // namespace

absl::StatusOr<EvaluateResult> EvaluateTogether(const Evaluator& evaluate, const Dataset& data,
                                                int64_t at_once, Communicator& communicator) {
  if (at_once == 0) at_once = kDefaultAtOnce;
  const ShareRange range = ShareOf(data.size(), communicator.rank(), communicator.size());
  double sums[3] = {0, 0, 0};
  BatchMemory memory;
  std::vector<int64_t> ids;
  for (int64_t begin = range.begin; begin < range.end; begin += at_once) {
    ids.clear();
    for (int64_t i = begin; i < std::min(begin + at_once, range.end); ++i) ids.push_back(i);
    ASSIGN_OR_RETURN(const Batch batch, data.Read(ids, memory));
    ASSIGN_OR_RETURN(const EvaluateResult result, evaluate(batch));
    sums[0] += result.loss_sum;
    sums[1] += static_cast<double>(result.correct);
    sums[2] += static_cast<double>(result.count);
  }
  RETURN_IF_ERROR(communicator.AllReduceSum(sums, 3));
  return EvaluateResult{sums[0], static_cast<int64_t>(sums[1]), static_cast<int64_t>(sums[2])};
}

void ReportEvaluation(Session& session, const OpenedData& data, const EvaluateResult& total) {
  const double count = static_cast<double>(total.count);
  const double loss = total.loss_sum / count;
  const std::string name = data.evaluation_name;
  session.ReportMetric(name + "_loss", loss);
  if (data.inputs > 0) {
    const double top1 = static_cast<double>(total.correct) / count;
    session.ReportMetric(name + "_top1", top1);
    session.Note(absl::StrFormat("%s: loss %.4f, top-1 %.2f %% of %d images", name, loss,
                                 100 * top1, total.count));
  } else {
    session.ReportMetric(name + "_perplexity", std::exp(loss));
    session.Note(absl::StrFormat("%s: loss %.4f, perplexity %.3f over %d tokens", name, loss,
                                 std::exp(loss), total.count));
  }
}

}  // namespace trainctl

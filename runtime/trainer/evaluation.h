// The result of a model on data that it was not trained on, each rank taking its share.
#ifndef TRAINCTL_RUNTIME_TRAINER_EVALUATION_H_
#define TRAINCTL_RUNTIME_TRAINER_EVALUATION_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "runtime/trainer/dataset.h"
#include "runtime/trainer/model.h"
#include "runtime/worker/communicator.h"
#include "runtime/worker/session.h"

namespace trainctl {

// Of a batch, on whatever the model is trained on.
using Evaluator = std::function<absl::StatusOr<EvaluateResult>(const Batch& batch)>;

// Collective; all ranks get the total. `at_once` samples at a time, 0: a number of our choice.
absl::StatusOr<EvaluateResult> EvaluateTogether(const Evaluator& evaluate, const Dataset& data,
                                                int64_t at_once, Communicator& communicator);

// As metrics (test_loss and test_top1 of images, validation_loss and validation_perplexity of
// tokens) and as a line for the user.
void ReportEvaluation(Session& session, const OpenedData& data, const EvaluateResult& total);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_EVALUATION_H_

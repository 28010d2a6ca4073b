// train-bench: one worker of `trainctl bench allreduce`. Rank 0 prints the table.
//
//   train-bench allreduce auto|nccl|gloo LARGEST
//
// As nccl-tests: some calls to warm up, then a number of calls and one wait; time is the mean of a
// call on rank 0. algbw = bytes / time; busbw = algbw * 2 (n - 1) / n, what each link carries.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/bench/subject.h"

namespace trainctl {
namespace {

constexpr size_t kSmallest = 8;
constexpr size_t kStep = 4;
constexpr int kWarmUp = 5;
constexpr size_t kMostCompared = size_t{1} << 20;  // elements

// Whole numbers, so that a sum is exact in every order.
float TermAt(size_t i, int rank) {
  return static_cast<float>((i + 7 * static_cast<size_t>(rank)) % 61);
}

absl::StatusOr<size_t> WrongSums(Subject& subject, const SessionIdentity& identity, size_t bytes) {
  const size_t count = std::min(bytes / sizeof(float), kMostCompared);
  std::vector<float> terms(count);
  for (size_t i = 0; i < count; ++i) terms[i] = TermAt(i, identity.rank);
  RETURN_IF_ERROR(subject.Put(terms));
  RETURN_IF_ERROR(subject.AllReduce(bytes, 1));
  ASSIGN_OR_RETURN(const std::vector<float> sums, subject.Get(count));
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < identity.world_size; ++rank) sum += TermAt(i, rank);
    wrong += sums[i] != sum ? 1 : 0;
  }
  return wrong;
}

absl::Status Measure(Session& session, Subject& subject, size_t bytes, size_t* all_wrong) {
  const SessionIdentity& identity = session.identity();
  ASSIGN_OR_RETURN(const size_t wrong, WrongSums(subject, identity, bytes));
  *all_wrong += wrong;
  RETURN_IF_ERROR(subject.AllReduce(bytes, kWarmUp));
  RETURN_IF_ERROR(subject.Barrier());
  const int calls = subject.Calls(bytes);
  const Instant begin = Now();
  RETURN_IF_ERROR(subject.AllReduce(bytes, calls));
  const double seconds = ToSeconds(Now() - begin) / calls;
  if (identity.rank != 0) return absl::OkStatus();
  const double algbw = static_cast<double>(bytes) / seconds * 1e-9;
  const double busbw = algbw * 2 * (identity.world_size - 1) / identity.world_size;
  std::printf("%12zu %12zu %11.1f %9.2f %9.2f %7zu\n", bytes, bytes / sizeof(float), seconds * 1e6,
              algbw, busbw, wrong);
  std::fflush(stdout);
  session.ReportMetric(absl::StrCat("busbw_", bytes), busbw);
  session.ReportMetric(absl::StrCat("microseconds_", bytes), seconds * 1e6);
  return absl::OkStatus();
}

absl::Status Run(const std::string& backend, size_t largest) {
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::FromEnvironment());
  const bool nccl = backend == "nccl" || (backend == "auto" && HasGpu());
  ASSIGN_OR_RETURN(std::unique_ptr<Subject> subject,
                   nccl ? MakeNcclSubject(*session, largest) : MakeGlooSubject(*session, largest));
  if (session->identity().rank == 0) {
    std::printf("all-reduce of float32, %d ranks, %s\n%12s %12s %11s %9s %9s %7s\n",
                session->identity().world_size, subject->name().c_str(), "bytes", "count",
                "time us", "algbw", "busbw", "wrong");
    std::fflush(stdout);
  }
  size_t wrong = 0;
  for (size_t bytes = kSmallest; bytes <= largest; bytes *= kStep) {
    RETURN_IF_ERROR(Measure(*session, *subject, bytes, &wrong));
  }
  if (wrong > 0) {
    return absl::DataLossError(
        absl::StrCat("all-reduce: ", wrong, " sums are wrong; see trainctl preflight"));
  }
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& words) {
  size_t largest = 0;
  if (words.size() != 3 || words[0] != "allreduce" || !absl::SimpleAtoi(words[2], &largest)) {
    fprintf(stderr, "train-bench is started by trainctl bench\n");
    return 2;
  }
  const absl::Status status = Run(words[1], largest);
  if (status.ok()) return 0;
  fprintf(stderr, "train-bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  try {
    return trainctl::Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fprintf(stderr, "train-bench: unexpected: %s\n", error.what());
    abort();
  }
}

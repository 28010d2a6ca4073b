#include "runtime/preflight/folder_session.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/device/stream.h"

namespace trainctl {
namespace {

class FolderSession : public Session {
 public:
  FolderSession(std::string folder, int rank, int ranks, MappedPage page)
      : folder_(std::move(folder)), page_(std::move(page)) {
    identity_.job_id = "preflight";
    identity_.rank = identity_.local_rank = rank;
    identity_.world_size = identity_.local_world_size = ranks;
  }

  const SessionIdentity& identity() const override { return identity_; }
  WorkerPage& page() override { return *page_.get(); }

  absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view name, absl::string_view value,
                                                    Duration timeout) override {
    const Instant begin = Now();
    RETURN_IF_ERROR(ReplaceFile(PathOf(name, identity_.rank), value));
    std::vector<std::string> values;
    for (int rank = 0; rank < identity_.world_size; ++rank) {
      absl::StatusOr<std::string> read = ReadFile(PathOf(name, rank));
      while (absl::IsNotFound(read.status())) {
        if (Now() >= begin + timeout) {
          return absl::DeadlineExceededError(absl::StrCat("exchange \"", name, "\": rank ", rank,
                                                          " is missing after ", ToSeconds(timeout),
                                                          " s"));
        }
        PauseBetweenLooks(begin);
        read = ReadFile(PathOf(name, rank));
      }
      RETURN_IF_ERROR(read.status());
      values.push_back(*std::move(read));
    }
    return values;
  }

  absl::StatusOr<frame::CommitGranted> ShardPrepared(Step, const frame::Shard&, Duration) override {
    return absl::FailedPreconditionError("save a checkpoint: nobody is there to grant it");
  }
  void CheckpointPublished(Step) override {}
  void CheckpointRejected(Step, absl::string_view) override {}
  void ReportMetric(absl::string_view, double) override {}
  void Note(absl::string_view text) override {
    WriteAll(STDERR_FILENO, absl::StrCat(text, "\n"), "stderr").IgnoreError();
  }
  void OnLost(std::function<void(absl::string_view)>) override {}

 private:
  std::string PathOf(absl::string_view name, int rank) const {
    return JoinPath(folder_, absl::StrCat(name, ".", rank));
  }

  const std::string folder_;
  SessionIdentity identity_;
  MappedPage page_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> MakeFolderSession(const std::string& folder, int rank,
                                                           int ranks) {
  int fd = -1;
  ASSIGN_OR_RETURN(MappedPage page, MappedPage::Create(&fd));
  Fd closed_when_mapped(fd);
  return std::make_unique<FolderSession>(folder, rank, ranks, std::move(page));
}

}  // namespace trainctl

#include "runtime/trainer/checkpointing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/retention.h"

namespace trainctl {
namespace {

constexpr Duration kGrantTimeout = seconds(120);

}  // namespace

Checkpointing::Checkpointing(std::string folder, int keep, Session& session,
                             Communicator& communicator)
    : folder_(std::move(folder)),
      keep_(keep),
      session_(session),
      communicator_(communicator),
      writer_(folder_, session.identity().epoch) {}

// All ranks get the same answer: OK with *lost set if some disk was full, an error if anything else
// failed anywhere.
absl::Status Checkpointing::AgreeOn(const absl::Status& mine, bool* lost) {
  const bool full = absl::IsResourceExhausted(mine);
  double flags[2] = {full ? 1.0 : 0.0, !mine.ok() && !full ? 1.0 : 0.0};
  RETURN_IF_ERROR(communicator_.AllReduceSum(flags, 2));
  *lost = flags[0] > 0;
  if (flags[1] == 0) return absl::OkStatus();
  if (!mine.ok() && !full) return mine;
  return absl::FailedPreconditionError(
      "save a checkpoint: another rank failed, its message says why");
}

absl::Status Checkpointing::Open() {
  absl::Status opened = writer_.Open();
  if (opened.ok() && communicator_.rank() == 0) opened = writer_.Sweep();
  bool lost = false;
  RETURN_IF_ERROR(AgreeOn(opened, &lost));
  // Without room for even a folder there will never be a checkpoint.
  if (lost)
    return opened.ok() ? absl::ResourceExhaustedError("another rank's disk is full") : opened;
  return absl::OkStatus();
}

absl::Status Checkpointing::Save(Step step, const std::vector<StateTensor>& tensors,
                                 const Progress& progress) {
  const int rank = communicator_.rank(), world_size = communicator_.size();
  const absl::StatusOr<ShardFile> shard =
      writer_.WriteShard(step, rank, world_size, ShardOf(tensors, rank, world_size),
                         {{"step", absl::StrCat(step.value)}});
  if (absl::IsResourceExhausted(shard.status())) {
    session_.Note(absl::StrCat(shard.status().message(), "; training goes on without it"));
  }
  bool lost = false;
  RETURN_IF_ERROR(AgreeOn(shard.status(), &lost));
  if (lost) return rank == 0 ? writer_.Discard(step) : absl::OkStatus();
  frame::Shard prepared;
  prepared.rank = rank;
  prepared.file = shard->file;
  prepared.length = shard->length;
  prepared.digest = shard->digest;
  ASSIGN_OR_RETURN(const frame::CommitGranted granted,
                   session_.ShardPrepared(step, prepared, kGrantTimeout));
  return rank == 0 ? Publish(step, granted, progress) : absl::OkStatus();
}

absl::Status Checkpointing::Publish(Step step, const frame::CommitGranted& granted,
                                    const Progress& progress) {
  Manifest manifest;
  manifest.step = step;
  manifest.term = Term(granted.term);
  manifest.epoch = session_.identity().epoch;
  manifest.world_size = communicator_.size();
  for (const frame::Shard& shard : granted.shards) {
    manifest.shards.push_back({shard.file, shard.length, shard.digest});
  }
  manifest.state = FormatProgress(progress);
  const absl::Status committed = writer_.Commit(manifest);
  if (absl::IsResourceExhausted(committed)) {
    session_.Note(absl::StrCat(committed.message(), "; training goes on without it"));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(committed);
  session_.CheckpointPublished(step);
  std::vector<Step> may_delete;
  for (int64_t old : granted.may_delete) may_delete.push_back(Step(old));
  if (keep_ > 0) {
    ASSIGN_OR_RETURN(std::vector<Step> steps, ListCheckpoints(folder_));
    may_delete = DecideRetention(std::move(steps), keep_, std::nullopt).may_delete;
  }
  for (Step old : may_delete) RETURN_IF_ERROR(writer_.Delete(old));
  return absl::OkStatus();
}

}  // namespace trainctl

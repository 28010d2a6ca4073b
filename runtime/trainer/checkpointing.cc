#include "runtime/trainer/checkpointing.h"

#include <cstdint>
#include <cstring>
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

// The same on all ranks: OK, or the failure of the lowest of those ranks whose failure is worst (a
// full disk is the least). Its text names the rank, elsewhere than there.
absl::Status Checkpointing::Agree(const absl::Status& mine) {
  const int ranks = communicator_.size();
  if (ranks == 1) return mine;
  double failed = mine.ok() ? 0 : 1;
  RETURN_IF_ERROR(communicator_.AllReduceSum(&failed, 1));
  if (failed == 0) return absl::OkStatus();
  struct Told {
    int32_t code = 0;
    char text[1020] = {};
  };
  Told told;
  told.code = static_cast<int32_t>(mine.code());
  const absl::string_view text = mine.message().substr(0, sizeof(told.text) - 1);
  std::memcpy(told.text, text.data(), text.size());
  std::vector<Told> all(static_cast<size_t>(ranks));
  RETURN_IF_ERROR(communicator_.AllGather(&told, all.data(), sizeof(told)));
  absl::Status worst;
  for (int rank = 0; rank < ranks; ++rank) {
    const Told& from = all[static_cast<size_t>(rank)];
    const std::string whose = rank == communicator_.rank() ? "" : absl::StrCat("rank ", rank, ": ");
    const absl::Status status(static_cast<absl::StatusCode>(from.code),
                              absl::StrCat(whose, from.text));
    const bool worse = worst.ok() || absl::IsResourceExhausted(worst);
    if (!status.ok() && worse && (worst.ok() || !absl::IsResourceExhausted(status))) worst = status;
  }
  return worst;
}

absl::Status Checkpointing::Open() {
  absl::Status opened = writer_.Open();
  if (opened.ok() && communicator_.rank() == 0) opened = writer_.Sweep();
  RETURN_IF_ERROR(Agree(opened));
  const absl::Status tried = Agree(writer_.Probe(communicator_.rank()));
  if (!absl::IsResourceExhausted(tried)) return tried;
  // There may be room again by the time of the first checkpoint.
  if (communicator_.rank() == 0) TellLost(tried);
  return absl::OkStatus();
}

void Checkpointing::TellLost(const absl::Status& why) {
  if (std::exchange(told_lost_, true)) return;
  session_.Note(absl::StrCat(why.message(),
                             "; training goes on, and the next checkpoints are tried as planned"));
}

absl::Status Checkpointing::Save(Step step, const std::vector<StateTensor>& tensors,
                                 const Progress& progress) {
  const int rank = communicator_.rank(), world_size = communicator_.size();
  const absl::StatusOr<ShardFile> shard =
      writer_.WriteShard(step, rank, world_size, ShardOf(tensors, rank, world_size),
                         {{"step", absl::StrCat(step.value)}});
  const absl::Status agreed = Agree(shard.status());
  if (absl::IsResourceExhausted(agreed)) {
    if (rank != 0) return absl::OkStatus();
    unsaved_ = agreed;
    TellLost(agreed);
    return writer_.Discard(step);
  }
  RETURN_IF_ERROR(agreed);
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
  unsaved_ = writer_.Commit(manifest);
  if (absl::IsResourceExhausted(unsaved_)) {
    TellLost(unsaved_);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(unsaved_);
  if (std::exchange(told_lost_, false)) {
    session_.Note(absl::StrCat("checkpoints are saved again, from step ", step.value, " on"));
  }
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

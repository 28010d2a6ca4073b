// Writing and publishing checkpoints. A shard goes to a hidden folder of its step and epoch; the
// finished folder appears under its final name by one rename.
#ifndef TRAINCTL_RUNTIME_CHECKPOINT_WRITER_H_
#define TRAINCTL_RUNTIME_CHECKPOINT_WRITER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/ids.h"
#include "runtime/checkpoint/disk.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/safetensors.h"

namespace trainctl {

// One per process and epoch. Not thread-safe; every call blocks for the disk. After a failed fsync
// every call returns that error: what the disk holds is not known any more. RESOURCE_EXHAUSTED (the
// disk is full) does not poison: the step is lost, a later one may succeed.
class CheckpointWriter {
 public:
  // `folder` is the job's checkpoint folder; Open makes it. `disk` must outlive the writer.
  CheckpointWriter(std::string folder, Epoch epoch, Disk& disk = RealDisk());

  absl::Status Open();

  // Creates, writes and removes a small file, so that a folder that cannot be written is found
  // before the first step and not after hours. `rank` keeps the ranks' files apart.
  absl::Status Probe(int rank);

  // Removes what earlier epochs left unfinished and what retention had not finished removing. Call
  // on one rank, before any rank writes. A late writer of an earlier epoch then finds no folder to
  // publish.
  absl::Status Sweep();

  // Writes and syncs the file of one rank. On failure that file is removed, and the folder if
  // nothing else is in it.
  absl::StatusOr<ShardFile> WriteShard(Step step, int rank, int world_size,
                                       const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata);

  // Proves that every shard has the length that its rank reported, writes the manifest, publishes.
  // An older checkpoint of the same step is replaced. OK means durable. REQUIRES: every rank's
  // WriteShard returned, and the commit was granted; manifest.epoch is this writer's.
  absl::Status Commit(const Manifest& manifest);

  // Removes the unfinished folder of a step whose commit is not going to happen.
  absl::Status Discard(Step step);

  // Makes a published step invisible, then removes it. Missing is fine.
  absl::Status Delete(Step step);

 private:
  std::string HiddenFolder(Step step) const;
  absl::Status Poison(absl::Status status);
  absl::StatusOr<ShardFile> TryWriteShard(const std::string& path, const std::string& name,
                                          const std::vector<TensorView>& tensors,
                                          const std::map<std::string, std::string>& metadata);
  absl::Status WriteManifest(const Manifest& manifest);
  absl::Status Publish(Step step);

  std::string folder_;
  Epoch epoch_;
  Disk& disk_;
  absl::Status poison_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_CHECKPOINT_WRITER_H_

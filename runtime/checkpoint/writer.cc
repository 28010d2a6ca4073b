#include "runtime/checkpoint/writer.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/digest.h"

namespace trainctl {
namespace {

constexpr absl::string_view kProbePrefix = ".probe-";

absl::Status Explain(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return status;
  absl::string_view remedy;
  if (absl::IsResourceExhausted(status)) {
    remedy = "; free space there, keep fewer checkpoints, or give another checkpoint folder";
  } else if (absl::IsPermissionDenied(status)) {
    remedy = "; give a checkpoint folder that this user may write";
  }
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message(), remedy));
}

absl::Status CheckLength(const std::string& path, uint64_t length) {
  struct stat info;
  if (::stat(path.c_str(), &info) < 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  if (static_cast<uint64_t>(info.st_size) != length) {
    return absl::DataLossError(absl::StrCat(path, " has ", info.st_size,
                                            " bytes, its rank reported ", length,
                                            "; do all nodes see the same checkpoint folder?"));
  }
  return absl::OkStatus();
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string folder, Epoch epoch, Disk& disk)
    : folder_(std::move(folder)), epoch_(epoch), disk_(disk) {}

absl::Status CheckpointWriter::Poison(absl::Status status) {
  if (!status.ok()) poison_ = status;
  return status;
}

std::string CheckpointWriter::HiddenFolder(Step step) const {
  return JoinPath(folder_, HiddenFolderName(step, epoch_));
}

absl::Status CheckpointWriter::Open() {
  RETURN_IF_ERROR(poison_);
  if (absl::Status made = MakeFolders(folder_); !made.ok()) {
    return Explain(made, "make the checkpoint folder");
  }
  return Explain(Poison(disk_.SyncFolder(FolderOf(folder_))),
                 absl::StrCat("make the checkpoint folder ", folder_));
}

absl::Status CheckpointWriter::Probe(int rank) {
  RETURN_IF_ERROR(poison_);
  const std::string path =
      JoinPath(folder_, absl::StrCat(kProbePrefix, "epoch-", epoch_.value, "-rank-", rank));
  const absl::StatusOr<Fd> file = disk_.CreateFile(path);
  absl::Status done = file.status();
  if (done.ok()) {
    done = disk_.Write(*file, "This folder can be written.\n", path);
    done.Update(disk_.RemoveFile(path));
  }
  return Explain(done, "try the checkpoint folder");
}

absl::Status CheckpointWriter::Sweep() {
  RETURN_IF_ERROR(poison_);
  DIR* stream = ::opendir(folder_.c_str());
  if (stream == nullptr) return ErrnoStatus(errno, absl::StrCat("open folder ", folder_));
  std::vector<std::string> hidden;
  std::vector<std::string> probes;  // of ranks that were killed meanwhile
  while (const dirent* entry = ::readdir(stream)) {
    if (IsHiddenFolderName(entry->d_name)) hidden.push_back(JoinPath(folder_, entry->d_name));
    if (absl::StartsWith(entry->d_name, kProbePrefix)) {
      probes.push_back(JoinPath(folder_, entry->d_name));
    }
  }
  ::closedir(stream);
  for (const std::string& path : probes) RETURN_IF_ERROR(disk_.RemoveFile(path));
  for (const std::string& path : hidden) RETURN_IF_ERROR(RemoveWithFiles(disk_, path));
  return absl::OkStatus();
}

absl::StatusOr<ShardFile> CheckpointWriter::WriteShard(
    Step step, int rank, int world_size, const std::vector<TensorView>& tensors,
    const std::map<std::string, std::string>& metadata) {
  RETURN_IF_ERROR(poison_);
  const std::string folder = HiddenFolder(step);
  const std::string name = ShardFileName(rank, world_size);
  const std::string path = JoinPath(folder, name);
  const std::string what = absl::StrCat("write the checkpoint of step ", step.value);
  if (absl::Status made = disk_.MakeFolder(folder); !made.ok()) return Explain(made, what);
  absl::StatusOr<ShardFile> shard = TryWriteShard(path, name, tensors, metadata);
  if (shard.ok()) {
    if (absl::Status synced = Poison(disk_.SyncFolder(folder)); synced.ok()) return shard;
    shard = poison_;
  }
  // What failed is the write; that the rest cannot be removed either adds nothing to it.
  disk_.RemoveFile(path).IgnoreError();
  disk_.RemoveFolder(folder).IgnoreError();
  return Explain(shard.status(), what);
}

absl::StatusOr<ShardFile> CheckpointWriter::TryWriteShard(
    const std::string& path, const std::string& name, const std::vector<TensorView>& tensors,
    const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const Fd file, disk_.CreateFile(path));
  ShardFile shard;
  shard.file = name;
  Digest digest;
  RETURN_IF_ERROR(WriteSafetensors(tensors, metadata, [&](absl::string_view piece) {
    digest.Add(piece);
    shard.length += piece.size();
    return disk_.Write(file, piece, path);
  }));
  RETURN_IF_ERROR(Poison(disk_.SyncFile(file, path)));
  shard.digest = digest.Text();
  return shard;
}

absl::Status CheckpointWriter::WriteManifest(const Manifest& manifest) {
  const std::string folder = HiddenFolder(manifest.step);
  for (const ShardFile& shard : manifest.shards) {
    RETURN_IF_ERROR(CheckLength(JoinPath(folder, shard.file), shard.length));
  }
  ASSIGN_OR_RETURN(const std::string text, FormatManifest(manifest));
  const std::string path = JoinPath(folder, kManifestFile);
  ASSIGN_OR_RETURN(const Fd file, disk_.CreateFile(path));
  RETURN_IF_ERROR(disk_.Write(file, text, path));
  RETURN_IF_ERROR(Poison(disk_.SyncFile(file, path)));
  return Poison(disk_.SyncFolder(folder));
}

absl::Status CheckpointWriter::Commit(const Manifest& manifest) {
  RETURN_IF_ERROR(poison_);
  CHECK(manifest.epoch == epoch_);
  const std::string what = absl::StrCat("commit the checkpoint of step ", manifest.step.value);
  if (absl::Status written = WriteManifest(manifest); !written.ok()) {
    Discard(manifest.step).IgnoreError();
    return Explain(written, what);
  }
  if (absl::Status published = Publish(manifest.step); !published.ok()) {
    return Explain(published, what);
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Publish(Step step) {
  const std::string hidden = HiddenFolder(step);
  const std::string visible = JoinPath(folder_, StepFolderName(step));
  struct stat info;
  if (::stat(visible.c_str(), &info) < 0) {
    RETURN_IF_ERROR(disk_.Rename(hidden, visible));
    return Poison(disk_.SyncFolder(folder_));
  }
  // The same step was published before: damaged since, or by an epoch whose word of it was lost.
  absl::Status exchanged = disk_.Exchange(hidden, visible);
  if (absl::IsUnimplemented(exchanged)) {
    RETURN_IF_ERROR(disk_.Rename(visible, JoinPath(folder_, DeletedFolderName(step))));
    exchanged = disk_.Rename(hidden, visible);
  }
  RETURN_IF_ERROR(exchanged);
  RETURN_IF_ERROR(Poison(disk_.SyncFolder(folder_)));
  RETURN_IF_ERROR(RemoveWithFiles(disk_, hidden));
  return RemoveWithFiles(disk_, JoinPath(folder_, DeletedFolderName(step)));
}

absl::Status CheckpointWriter::Discard(Step step) {
  return RemoveWithFiles(disk_, HiddenFolder(step));
}

absl::Status CheckpointWriter::Delete(Step step) {
  RETURN_IF_ERROR(poison_);
  const std::string visible = JoinPath(folder_, StepFolderName(step));
  const std::string deleted = JoinPath(folder_, DeletedFolderName(step));
  RETURN_IF_ERROR(RemoveWithFiles(disk_, deleted));
  if (absl::Status renamed = disk_.Rename(visible, deleted); !renamed.ok()) {
    return absl::IsNotFound(renamed) ? absl::OkStatus() : renamed;
  }
  RETURN_IF_ERROR(Poison(disk_.SyncFolder(folder_)));
  return RemoveWithFiles(disk_, deleted);
}

}  // namespace trainctl

#include "runtime/checkpoint/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/digest.h"

namespace trainctl {
namespace {

constexpr size_t kManifestLimit = size_t{256} << 20;

absl::Status Damaged(absl::string_view what) { return absl::DataLossError(what); }

// A missing or unreadable part is damage; running out of descriptors or memory is not.
absl::Status AsDamage(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return status;
  return Damaged(status.message());
}

absl::StatusOr<std::string> ReadExactly(const std::string& path, uint64_t length) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return AsDamage(ErrnoStatus(errno, absl::StrCat("open ", path)));
  struct stat info;
  if (::fstat(file.get(), &info) < 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  if (static_cast<uint64_t>(info.st_size) != length) {
    return Damaged(absl::StrCat(path, " has ", info.st_size, " bytes, the manifest says ", length));
  }
  std::string bytes(length, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return AsDamage(ErrnoStatus(errno, absl::StrCat("read ", path)));
    if (n == 0) return Damaged(absl::StrCat(path, " ends at byte ", done, " of ", length));
    done += static_cast<size_t>(n);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::vector<Step>> ListCheckpoints(const std::string& folder) {
  std::vector<Step> steps;
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) {
    if (errno == ENOENT) return steps;
    return ErrnoStatus(errno, absl::StrCat("open checkpoint folder ", folder));
  }
  while (const dirent* entry = ::readdir(stream)) {
    if (const auto step = ParseStepFolderName(entry->d_name)) steps.push_back(*step);
  }
  ::closedir(stream);
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& folder, Step step) {
  FoundCheckpoint found;
  found.path = JoinPath(folder, StepFolderName(step));
  absl::StatusOr<std::string> text = ReadFile(JoinPath(found.path, kManifestFile), kManifestLimit);
  if (!text.ok()) return AsDamage(text.status());
  absl::StatusOr<Manifest> manifest = ParseManifest(*text);
  if (!manifest.ok()) {
    return Damaged(absl::StrCat(found.path, ": ", manifest.status().message()));
  }
  found.manifest = *std::move(manifest);
  if (found.manifest.step != step) {
    return Damaged(
        absl::StrCat(found.path, ": its manifest is of step ", found.manifest.step.value));
  }
  for (const ShardFile& shard : found.manifest.shards) {
    const std::string path = JoinPath(found.path, shard.file);
    struct stat info;
    if (::stat(path.c_str(), &info) < 0) {
      return AsDamage(ErrnoStatus(errno, absl::StrCat("stat ", path)));
    }
    if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != shard.length) {
      return Damaged(
          absl::StrCat(path, " has ", info.st_size, " bytes, the manifest says ", shard.length));
    }
  }
  return found;
}

absl::StatusOr<CheckpointSearch> NewestValid(const std::string& folder, std::optional<Step> limit) {
  ASSIGN_OR_RETURN(std::vector<Step> steps, ListCheckpoints(folder));
  CheckpointSearch search;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (limit.has_value() && *step > *limit) continue;
    absl::StatusOr<FoundCheckpoint> found = OpenCheckpoint(folder, *step);
    if (found.ok()) {
      search.found = *std::move(found);
      return search;
    }
    if (!absl::IsDataLoss(found.status())) return found.status();
    search.rejected.push_back({*step, std::string(found.status().message())});
  }
  return search;
}

absl::StatusOr<SafetensorsFile> LoadShard(const FoundCheckpoint& checkpoint, int rank) {
  CHECK(rank >= 0 && rank < checkpoint.manifest.world_size);
  const ShardFile& shard = checkpoint.manifest.shards[rank];
  const std::string path = JoinPath(checkpoint.path, shard.file);
  ASSIGN_OR_RETURN(std::string bytes, ReadExactly(path, shard.length));
  if (const std::string digest = DigestOf(bytes); digest != shard.digest) {
    return Damaged(
        absl::StrCat(path, ": its digest is ", digest, ", the manifest says ", shard.digest));
  }
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Parse(std::move(bytes));
  if (!file.ok()) return Damaged(absl::StrCat(path, ": ", file.status().message()));
  return file;
}

}  // namespace trainctl

// Whole files, and writes that survive a crash.
#ifndef TRAINCTL_RUNTIME_BASE_FILE_H_
#define TRAINCTL_RUNTIME_BASE_FILE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// NOT_FOUND if there is no file; RESOURCE_EXHAUSTED if it is larger than `limit` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit = size_t{1} << 30);

// After return the file holds `data` and survives a power cut; before, it holds what it held.
// (Sibling temporary file, fsync, rename, fsync of the folder.)
absl::Status WriteFileAtomically(const std::string& path, absl::string_view data);
// The same but for the power cut, after which the file may hold what it held, or nothing.
absl::Status ReplaceFile(const std::string& path, absl::string_view data);

absl::Status SyncFolder(const std::string& path);  // fsync of a folder, so that its names survive
absl::Status MakeFolders(const std::string& path, unsigned mode = 0755);  // as mkdir -p
// Names in a folder, without hidden ones, in no order; none if it cannot be read.
std::vector<std::string> FolderEntries(const std::string& path);
std::string JoinPath(absl::string_view folder, absl::string_view name);
std::string FolderOf(const std::string& path);  // "." if there is none

// Folder of the running program, from /proc/self/exe.
std::string ProgramFolder();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_FILE_H_

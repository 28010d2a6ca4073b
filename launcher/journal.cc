#include "launcher/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/journal_format.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace trainctl {

absl::StatusOr<Journal> Journal::Open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open journal ", path));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock journal ", path));
    return absl::AlreadyExistsError(
        absl::StrCat("lock journal ", path, ": another coordinator of this job is alive"));
  }
  Journal journal(path, std::move(fd));
  RETURN_IF_ERROR(journal.Replay());
  return journal;
}

absl::Status Journal::Replay() {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path_));
  ASSIGN_OR_RETURN(JournalContents contents, ParseJournal(path_, bytes));
  records_ = std::move(contents.records);
  cut_ = bytes.size() - contents.valid;
  // The next Append's sync makes the cut durable; until then cutting again does the same.
  if (cut_ > 0 && ::ftruncate(fd_.get(), static_cast<off_t>(contents.valid)) < 0) {
    return ErrnoStatus(errno, absl::StrCat("cut the unfinished end of journal ", path_));
  }
  if (contents.valid > 0) return absl::OkStatus();
  return WriteAll(fd_.get(), JournalHeader(), absl::StrCat("journal ", path_));
}

Term Journal::next_term() const { return NextTerm(records_); }

absl::Status Journal::Append(const std::vector<JournalRecord>& records) {
  RETURN_IF_ERROR(poison_);
  if (records.empty()) return absl::OkStatus();
  poison_ = WriteAndSync(JournalFrames(records));
  return poison_;
}

absl::Status Journal::WriteAndSync(const std::string& bytes) {
  RETURN_IF_ERROR(WriteAll(fd_.get(), bytes, absl::StrCat("journal ", path_)));
  if (::fdatasync(fd_.get()) < 0) {
    return ErrnoStatus(errno, absl::StrCat("fdatasync journal ", path_));
  }
  if (!name_synced_) RETURN_IF_ERROR(SyncFolder(FolderOf(path_)));
  name_synced_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JournalRecord>> ReadJournal(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  ASSIGN_OR_RETURN(JournalContents contents, ParseJournal(path, bytes));
  return std::move(contents.records);
}

}  // namespace trainctl

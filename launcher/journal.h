// The coordinator's memory on disk: one append-only file per job, locked by the one coordinator
// that may exist. Its bytes: journal_format.h.
#ifndef TRAINCTL_LAUNCHER_JOURNAL_H_
#define TRAINCTL_LAUNCHER_JOURNAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/coordinator/journal_record.h"
#include "runtime/base/fd.h"
#include "runtime/base/ids.h"

namespace trainctl {

// Not thread-safe. Blocks on the disk. Holds the lock for life.
class Journal {
 public:
  // Opens or creates the file and cuts what a crash left half-written at its end. Appends nothing.
  // ALREADY_EXISTS: another coordinator of this job is alive. DATA_LOSS: damaged before its end,
  // with the offset. FAILED_PRECONDITION: written by a newer version. Else the disk's error; a
  // job without a journal must not start.
  static absl::StatusOr<Journal> Open(const std::string& path);

  // What was found at Open, oldest first.
  const std::vector<JournalRecord>& records() const { return records_; }
  Term next_term() const;                // greater than every term in records()
  uint64_t cut() const { return cut_; }  // bytes removed at the end by Open

  // After return the records survive a power cut; one sync for all. After an error every later call
  // returns that error: what the disk holds is then unknown.
  absl::Status Append(const std::vector<JournalRecord>& records);

 private:
  Journal(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  absl::Status Replay();
  absl::Status WriteAndSync(const std::string& bytes);

  std::string path_;
  Fd fd_;
  std::vector<JournalRecord> records_;
  uint64_t cut_ = 0;
  bool name_synced_ = false;
  absl::Status poison_;
};

// The records of a job's journal, for those who only look: no lock, nothing changed, an unfinished
// end ignored. NOT_FOUND if there is none; else as Open.
absl::StatusOr<std::vector<JournalRecord>> ReadJournal(const std::string& path);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_JOURNAL_H_

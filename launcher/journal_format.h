// The bytes of a job's journal, without the file they lie in. Pure.
//
// Layout, little-endian: header = "TRNJRNL\n", u32 version, u32 zero; then frames = u32 length,
// u64 XXH3-64 of (length, payload), payload = one record (journal_record.h).
#ifndef TRAINCTL_LAUNCHER_JOURNAL_FORMAT_H_
#define TRAINCTL_LAUNCHER_JOURNAL_FORMAT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/coordinator/journal_record.h"
#include "runtime/base/ids.h"

namespace trainctl {

std::string JournalHeader();
std::string JournalFrames(const std::vector<JournalRecord>& records);

struct JournalContents {
  std::vector<JournalRecord> records;
  size_t valid = 0;  // bytes up to the end of the last whole frame; 0: not even a header
};

// What a crash left unfinished at the end is passed over. DATA_LOSS: damaged before its end, with
// the offset; FAILED_PRECONDITION: written by a newer or older version. `path` is for messages.
absl::StatusOr<JournalContents> ParseJournal(const std::string& path, absl::string_view bytes);

Term NextTerm(const std::vector<JournalRecord>& records);  // greater than every term in them

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_JOURNAL_FORMAT_H_

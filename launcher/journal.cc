#include "launcher/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr absl::string_view kMagic = "TRNJRNL\n";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 16;
constexpr size_t kFrameHeaderBytes = 12;

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Get(absl::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::string Header() {
  std::string header(kMagic);
  Put(header, kVersion);
  Put(header, uint32_t{0});
  return header;
}

// The length seeds the sum, so that a damaged length is a damaged frame.
uint64_t Checksum(absl::string_view payload) {
  return XXH3_64bits_withSeed(payload.data(), payload.size(), payload.size() + 1);
}

void PutFrame(std::string& out, absl::string_view payload) {
  Put(out, static_cast<uint32_t>(payload.size()));
  Put(out, Checksum(payload));
  out.append(payload.data(), payload.size());
}

// The payload of a whole, undamaged frame at the start of `bytes`.
std::optional<absl::string_view> FrameAt(absl::string_view bytes) {
  if (bytes.size() < kFrameHeaderBytes) return std::nullopt;
  const auto length = Get<uint32_t>(bytes);
  if (length == 0 || length > bytes.size() - kFrameHeaderBytes) return std::nullopt;
  const absl::string_view payload = bytes.substr(kFrameHeaderBytes, length);
  if (Get<uint64_t>(bytes.substr(sizeof(uint32_t))) != Checksum(payload)) return std::nullopt;
  return payload;
}

// A crash leaves anything at the end, but never a whole frame after a broken one.
bool HoldsFrame(absl::string_view bytes) {
  for (; bytes.size() > kFrameHeaderBytes; bytes.remove_prefix(1)) {
    if (FrameAt(bytes)) return true;
  }
  return false;
}

struct Contents {
  std::vector<JournalRecord> records;
  size_t valid = 0;  // bytes up to the end of the last whole frame; 0: not even a header
};

absl::StatusOr<Contents> Parse(const std::string& path, absl::string_view bytes) {
  Contents contents;
  if (bytes.size() < kHeaderBytes) {
    const bool torn = absl::StartsWith(Header(), bytes) ||
                      std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == '\0'; });
    if (torn) return contents;
  }
  if (!absl::StartsWith(bytes, kMagic)) {
    return absl::DataLossError(absl::StrCat("read journal ", path, ": not a journal of trainctl"));
  }
  const auto version = Get<uint32_t>(bytes.substr(kMagic.size()));
  if (version > kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("read journal ", path, ": it has version ",
                                                      version, " and this program reads up to ",
                                                      kVersion, "; use the newer trainctl"));
  }
  if (bytes.substr(0, kHeaderBytes) != Header()) {
    return absl::DataLossError(absl::StrCat("read journal ", path, ": its header is damaged"));
  }
  size_t offset = kHeaderBytes;
  while (offset < bytes.size()) {
    const std::optional<absl::string_view> payload = FrameAt(bytes.substr(offset));
    if (!payload) {
      if (!HoldsFrame(bytes.substr(offset + 1))) break;
      return absl::DataLossError(absl::StrCat(
          "read journal ", path, ": damaged at byte ", offset,
          " with whole records after it; restore the file or start the job under a new name"));
    }
    absl::StatusOr<JournalRecord> record = DecodeRecord(*payload);
    if (!record.ok()) {
      return absl::DataLossError(absl::StrCat("read journal ", path, " at byte ", offset, ": ",
                                              record.status().message()));
    }
    contents.records.push_back(*std::move(record));
    offset += kFrameHeaderBytes + payload->size();
  }
  contents.valid = offset;
  return contents;
}

}  // namespace

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
  ASSIGN_OR_RETURN(Contents contents, Parse(path_, bytes));
  records_ = std::move(contents.records);
  cut_ = bytes.size() - contents.valid;
  // The next Append's sync makes the cut durable; until then cutting again does the same.
  if (cut_ > 0 && ::ftruncate(fd_.get(), static_cast<off_t>(contents.valid)) < 0) {
    return ErrnoStatus(errno, absl::StrCat("cut the unfinished end of journal ", path_));
  }
  if (contents.valid > 0) return absl::OkStatus();
  return WriteAll(fd_.get(), Header(), absl::StrCat("journal ", path_));
}

Term Journal::next_term() const {
  Term newest;
  for (const JournalRecord& record : records_) {
    if (const auto* started = std::get_if<TermStarted>(&record)) {
      newest = std::max(newest, started->term);
    }
  }
  return newest.Next();
}

absl::Status Journal::Append(const std::vector<JournalRecord>& records) {
  RETURN_IF_ERROR(poison_);
  if (records.empty()) return absl::OkStatus();
  std::string bytes;
  for (const JournalRecord& record : records) PutFrame(bytes, EncodeRecord(record));
  poison_ = WriteAndSync(bytes);
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
  ASSIGN_OR_RETURN(Contents contents, Parse(path, bytes));
  return std::move(contents.records);
}

}  // namespace trainctl

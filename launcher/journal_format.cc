#include "launcher/journal_format.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

constexpr absl::string_view kMagic = "TRNJRNL\n";
constexpr uint32_t kVersion = 2;
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

// No more than a beginning of the header, and zeros where the rest of it was to be.
bool IsTornHeader(absl::string_view bytes) {
  const std::string header = JournalHeader();
  const size_t both = std::min(header.size(), bytes.size());
  size_t same = 0;
  while (same < both && header[same] == bytes[same]) ++same;
  return same < header.size() && std::all_of(bytes.begin() + static_cast<ptrdiff_t>(same),
                                             bytes.end(), [](char c) { return c == '\0'; });
}

// A crash leaves anything at the end, but never a whole frame after a broken one.
bool HoldsFrame(absl::string_view bytes) {
  for (; bytes.size() > kFrameHeaderBytes; bytes.remove_prefix(1)) {
    if (FrameAt(bytes)) return true;
  }
  return false;
}

}  // namespace

std::string JournalHeader() {
  std::string header(kMagic);
  Put(header, kVersion);
  Put(header, uint32_t{0});
  return header;
}

std::string JournalFrames(const std::vector<JournalRecord>& records) {
  std::string bytes;
  for (const JournalRecord& record : records) PutFrame(bytes, EncodeRecord(record));
  return bytes;
}

absl::StatusOr<JournalContents> ParseJournal(const std::string& path, absl::string_view bytes) {
  JournalContents contents;
  if (IsTornHeader(bytes)) return contents;
  if (!absl::StartsWith(bytes, kMagic)) {
    return absl::DataLossError(absl::StrCat("read journal ", path, ": not a journal of trainctl"));
  }
  const auto version = Get<uint32_t>(bytes.substr(kMagic.size()));
  if (version > kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("read journal ", path, ": it has version ",
                                                      version, " and this program reads up to ",
                                                      kVersion, "; use the newer trainctl"));
  }
  if (version < kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "read journal ", path, ": it has version ", version, ", which is no longer read (",
        kVersion, " is); resume the job with the trainctl that began it"));
  }
  if (bytes.substr(0, kHeaderBytes) != JournalHeader()) {
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

Term NextTerm(const std::vector<JournalRecord>& records) {
  Term newest;
  for (const JournalRecord& record : records) {
    if (const auto* started = std::get_if<TermStarted>(&record)) {
      newest = std::max(newest, started->term);
    }
  }
  return newest.Next();
}

}  // namespace trainctl

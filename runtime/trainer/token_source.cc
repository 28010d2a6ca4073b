// The two kinds of token source: the bytes of a text, and a file of tokens.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/trainer/token_data.h"

namespace trainctl {
namespace {

constexpr char kMagic[] = "TCTOKENS";
constexpr int64_t kHeaderBytes = 24;
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxVocabulary = 65536;

// Length of the UTF-8 character that begins at `p`, 0 if none does (Unicode 15, table 3-7).
size_t CharacterLength(const uint8_t* p, size_t left) {
  const uint8_t lead = p[0];
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || length > left) return 0;
  uint8_t low = 0x80, high = 0xBF;  // of the second byte: no overlong forms, no surrogates
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  if (p[1] < low || p[1] > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((p[i] & 0xC0) != 0x80) return 0;
  }
  return length;
}

class TextSource final : public TokenSource {
 public:
  explicit TextSource(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  int64_t vocabulary() const override { return 256; }
  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const override {
    const char* from = bytes_.data() + begin;
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(from[i]);
    return absl::OkStatus();
  }

 private:
  std::string bytes_;
};

// All of `count` bytes at `offset`.
absl::Status ReadAt(int fd, int64_t offset, size_t count, uint8_t* out, const std::string& path) {
  size_t done = 0;
  while (done < count) {
    const ssize_t n = ::pread(fd, out + done, count - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (n == 0) {
      return absl::DataLossError(absl::StrCat(path, ": ends at byte ", offset + int64_t(done),
                                              "; it became shorter while it was read"));
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

class TokenFileSource final : public TokenSource {
 public:
  TokenFileSource(Fd file, std::string path, int64_t size, int64_t vocabulary)
      : file_(std::move(file)), path_(std::move(path)), size_(size), vocabulary_(vocabulary) {}
  int64_t size() const override { return size_; }
  int64_t vocabulary() const override { return vocabulary_; }
  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const override {
    std::vector<uint8_t> bytes(static_cast<size_t>(count) * 2);
    RETURN_IF_ERROR(
        ReadAt(file_.get(), kHeaderBytes + 2 * begin, bytes.size(), bytes.data(), path_));
    for (int64_t i = 0; i < count; ++i) {
      out[i] = bytes[2 * i] | bytes[2 * i + 1] << 8;
      if (out[i] >= vocabulary_) {
        return absl::DataLossError(absl::StrCat(path_, ": token ", out[i], " at position ",
                                                begin + i, " is out of range, the vocabulary has ",
                                                vocabulary_));
      }
    }
    return absl::OkStatus();
  }

 private:
  Fd file_;
  std::string path_;
  int64_t size_;
  int64_t vocabulary_;
};

template <typename T>
T LittleEndian(const uint8_t* bytes) {
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | bytes[i]);
  return value;
}

}  // namespace

absl::StatusOr<std::shared_ptr<TokenSource>> OpenText(const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadFile(path, size_t{4} << 30);
  if (!bytes.ok()) {
    return absl::Status(bytes.status().code(),
                        absl::StrCat(bytes.status().message(), "; correct train.data.path"));
  }
  const uint8_t* begin = reinterpret_cast<const uint8_t*>(bytes->data());
  for (size_t i = 0; i < bytes->size();) {
    const size_t length = CharacterLength(begin + i, bytes->size() - i);
    if (length == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": byte ", i,
                       " is not UTF-8 text; is it compressed, or of kind "
                       "tokens?"));
    }
    i += length;
  }
  return std::make_shared<TextSource>(*std::move(bytes));
}

absl::StatusOr<std::shared_ptr<TokenSource>> OpenTokenFile(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return ErrnoStatus(errno, absl::StrCat("open the token file ", path, " (train.data.path)"));
  }
  struct stat info;
  if (::fstat(file.get(), &info) < 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  if (info.st_size < kHeaderBytes) {
    return absl::DataLossError(absl::StrCat(path, ": truncated, has ", info.st_size,
                                            " bytes, a token file's header needs ", kHeaderBytes));
  }
  uint8_t header[kHeaderBytes];
  RETURN_IF_ERROR(ReadAt(file.get(), 0, sizeof(header), header, path));
  if (std::memcmp(header, kMagic, 8) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": wrong magic, a token file begins with ",
                                                   kMagic, "; is it plain text (kind text)?"));
  }
  const uint32_t version = LittleEndian<uint32_t>(header + 8);
  const uint32_t vocabulary = LittleEndian<uint32_t>(header + 12);
  const uint64_t count = LittleEndian<uint64_t>(header + 16);
  if (version != kVersion || vocabulary == 0 || vocabulary > kMaxVocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": version ", version, ", vocabulary ", vocabulary, "; this program reads version ",
        kVersion, " with a vocabulary of 1 to ", kMaxVocabulary));
  }
  const uint64_t held = static_cast<uint64_t>(info.st_size - kHeaderBytes) / 2;
  if (count != held || (info.st_size - kHeaderBytes) % 2 != 0) {
    return absl::DataLossError(absl::StrCat(path, ": its header claims ", count,
                                            " tokens, the file holds ", held,
                                            count > held ? "; it is truncated" : ""));
  }
  return std::make_shared<TokenFileSource>(std::move(file), path, static_cast<int64_t>(count),
                                           int64_t{vocabulary});
}

}  // namespace trainctl

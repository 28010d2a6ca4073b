#include "runtime/trainer/idx.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/digest.h"

namespace trainctl {
namespace {

constexpr uint64_t kMaxElements = uint64_t{4} << 30;
constexpr size_t kPiece = size_t{4} << 20;

struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose(file); }
};
using Gzip = std::unique_ptr<gzFile_s, CloseGzip>;

// Up to `count` bytes; fewer only at the end of the file.
absl::StatusOr<size_t> ReadSome(gzFile_s* file, uint8_t* out, size_t count,
                                const std::string& path) {
  const int n = gzread(file, out, static_cast<unsigned>(count));
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  if (code == Z_BUF_ERROR) {
    return absl::DataLossError(absl::StrCat(path, ": the compressed file is truncated"));
  }
  if (n < 0 || (code != Z_OK && code != Z_STREAM_END)) {
    return absl::DataLossError(absl::StrCat("read ", path, ": ", message));
  }
  return static_cast<size_t>(n);
}

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

absl::StatusOr<Gzip> Open(const std::string& path, std::string* opened) {
  for (const std::string& candidate : {path, path + ".gz"}) {
    Gzip file(gzopen(candidate.c_str(), "rbe"));
    if (file != nullptr) {
      gzbuffer(file.get(), 1 << 18);
      *opened = candidate;
      return file;
    }
    if (errno != ENOENT) return ErrnoStatus(errno, absl::StrCat("open ", candidate));
  }
  return absl::NotFoundError(absl::StrCat("neither ", path, " nor ", path, ".gz exists"));
}

absl::StatusOr<uint64_t> CheckHeader(const std::vector<uint8_t>& header, IdxArray* array) {
  const size_t dimensions = header.size() / 4 - 1;
  const uint32_t expected = 0x00000800u | static_cast<uint32_t>(dimensions);
  if (const uint32_t magic = BigEndian(header.data()); magic != expected) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: magic number %#010x, expected %#010x (IDX, unsigned bytes, %d "
                        "dimensions); is it another file?",
                        array->path, magic, expected, dimensions));
  }
  uint64_t elements = 1;
  for (size_t d = 0; d < dimensions; ++d) {
    const uint32_t extent = BigEndian(header.data() + 4 + 4 * d);
    array->shape.push_back(extent);
    if (__builtin_mul_overflow(elements, uint64_t{extent}, &elements) || elements > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat(array->path, ": its header claims more than ",
                                                     kMaxElements, " elements (dimension ", d + 1,
                                                     " is ", extent, "); the header is damaged"));
    }
  }
  return elements;
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int dimensions) {
  IdxArray array;
  ASSIGN_OR_RETURN(const Gzip file, Open(path, &array.path));
  std::vector<uint8_t> header(4 + 4 * static_cast<size_t>(dimensions));
  ASSIGN_OR_RETURN(const size_t read,
                   ReadSome(file.get(), header.data(), header.size(), array.path));
  if (read < header.size()) {
    return absl::DataLossError(absl::StrCat(array.path, ": truncated, has ", read,
                                            " bytes, an IDX ", "header needs ", header.size()));
  }
  ASSIGN_OR_RETURN(const uint64_t elements, CheckHeader(header, &array));
  Digest digest;
  digest.Add(header.data(), header.size());
  std::vector<uint8_t>& values = array.values;
  while (values.size() < elements) {
    const size_t before = values.size();
    values.resize(std::min<size_t>(elements, before + kPiece));
    ASSIGN_OR_RETURN(const size_t n, ReadSome(file.get(), values.data() + before,
                                              values.size() - before, array.path));
    if (n < values.size() - before) {
      return absl::DataLossError(absl::StrCat(array.path, ": truncated, holds ", before + n, " of ",
                                              elements, " elements (",
                                              absl::StrJoin(array.shape, " x "), ")"));
    }
    digest.Add(values.data() + before, n);
  }
  uint8_t extra;
  ASSIGN_OR_RETURN(const size_t more, ReadSome(file.get(), &extra, 1, array.path));
  if (more != 0) {
    return absl::DataLossError(absl::StrCat(array.path, ": longer than its header says (",
                                            absl::StrJoin(array.shape, " x "), ")"));
  }
  array.digest = digest.Text();
  return array;
}

}  // namespace trainctl

#include "runtime/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

struct DtypeRow {
  Dtype dtype;
  absl::string_view name;
  size_t bytes;
};
constexpr DtypeRow kDtypes[] = {
    {Dtype::kBool, "BOOL", 1}, {Dtype::kU8, "U8", 1},   {Dtype::kI8, "I8", 1},
    {Dtype::kU16, "U16", 2},   {Dtype::kI16, "I16", 2}, {Dtype::kF16, "F16", 2},
    {Dtype::kBf16, "BF16", 2}, {Dtype::kU32, "U32", 4}, {Dtype::kI32, "I32", 4},
    {Dtype::kF32, "F32", 4},   {Dtype::kU64, "U64", 8}, {Dtype::kI64, "I64", 8},
    {Dtype::kF64, "F64", 8},
};
constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr absl::string_view kMetadataKey = "__metadata__";

const DtypeRow& RowOf(Dtype dtype) {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row;
  }
  CHECK(false);
}

size_t BytesOf(const TensorView& tensor) {
  size_t bytes = DtypeBytes(tensor.dtype);
  for (int64_t extent : tensor.shape) bytes *= static_cast<size_t>(extent);
  return bytes;
}

// Bytes of a tensor as a file claims it; nullopt on overflow.
std::optional<uint64_t> CheckedBytes(Dtype dtype, const std::vector<int64_t>& shape) {
  uint64_t bytes = DtypeBytes(dtype);
  for (int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

absl::Status Invalid(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a valid safetensors file: ", what));
}

}  // namespace

absl::string_view DtypeName(Dtype dtype) { return RowOf(dtype).name; }
size_t DtypeBytes(Dtype dtype) { return RowOf(dtype).bytes; }

absl::Status WriteSafetensors(std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata,
                              const ByteSink& sink) {
  // Descending width first keeps every tensor aligned to its own element.
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    const size_t wa = DtypeBytes(a.dtype), wb = DtypeBytes(b.dtype);
    return wa != wb ? wa > wb : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    CHECK(tensor.name != kMetadataKey && !header.contains(tensor.name));
    const uint64_t end = offset + BytesOf(tensor);
    header[tensor.name] = {{"dtype", std::string(DtypeName(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = JsonText(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError(absl::StrCat("safetensors header of ", text.size(),
                                                   " bytes; the format allows ",
                                                   kMaxSafetensorsHeader));
  }
  std::string head(8, '\0');
  for (int i = 0; i < 8; ++i) head[i] = static_cast<char>(text.size() >> (8 * i));
  RETURN_IF_ERROR(sink(head + text));
  for (const TensorView& tensor : tensors) {
    absl::string_view rest(static_cast<const char*>(tensor.data), BytesOf(tensor));
    while (!rest.empty()) {
      RETURN_IF_ERROR(sink(rest.substr(0, kPieceBytes)));
      rest.remove_prefix(std::min(rest.size(), kPieceBytes));
    }
  }
  return absl::OkStatus();
}

// Reads the JSON header event by event: nothing but the entries themselves is ever built, and any
// key, type or depth that the format does not have ends the parse.
class SafetensorsFile::HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsFile* file) : file_(file) {}
  const std::string& error() const { return error_; }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) return To(State::kTop);
    if (state_ != State::kValue) return Fail("an object in the wrong place");
    if (name_ == kMetadataKey) return To(State::kMetadata);
    entry_ = Entry();
    seen_ = 0;
    return To(State::kEntry);
  }
  bool key(string_t& key) override {
    if (state_ == State::kTop) {
      name_ = key;
      const bool known =
          name_ == kMetadataKey ? std::exchange(metadata_seen_, true) : file_->entries_.count(key);
      if (known) return Fail(absl::StrCat("key \"", key, "\" appears twice"));
      return To(State::kValue);
    }
    if (state_ == State::kMetadata) {
      if (file_->metadata_.count(key)) return Fail(absl::StrCat("key \"", key, "\" appears twice"));
      metadata_key_ = key;
      return true;
    }
    const unsigned bit = key == "dtype" ? 1u : key == "shape" ? 2u : key == "data_offsets" ? 4u : 0;
    if (bit == 0) return Fail(absl::StrCat("unknown key \"", key, "\""));
    if (seen_ & bit) return Fail(absl::StrCat("key \"", key, "\" appears twice"));
    seen_ |= bit;
    return To(bit == 1 ? State::kDtype : bit == 2 ? State::kShape : State::kOffsets);
  }
  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      file_->metadata_[metadata_key_] = value;
      return true;
    }
    if (state_ != State::kDtype) return Fail("a string in the wrong place");
    for (const DtypeRow& row : kDtypes) {
      if (row.name == value) {
        entry_.dtype = row.dtype;
        return To(State::kEntry);
      }
    }
    return Fail(absl::StrCat("dtype \"", value, "\" is not one that this program reads"));
  }
  bool start_array(std::size_t) override {
    if (state_ == State::kShape) return To(State::kShapeItem);
    if (state_ == State::kOffsets) return To(State::kOffsetItem);
    return Fail("an array in the wrong place");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail("a number is too large");
    }
    if (state_ == State::kShapeItem) {
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (state_ != State::kOffsetItem || offsets_ == 2) return Fail("a number in the wrong place");
    (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    return true;
  }
  bool end_array() override {
    if (state_ == State::kOffsetItem && std::exchange(offsets_, 0) != 2) {
      return Fail("data_offsets must have two numbers");
    }
    return To(State::kEntry);
  }
  bool end_object() override {
    if (state_ == State::kTop) return To(State::kDone);
    if (state_ == State::kEntry) {
      if (seen_ != 7u) return Fail("dtype, shape and data_offsets are all needed");
      file_->entries_[name_] = std::move(entry_);
    }
    return To(State::kTop);
  }
  bool null() override { return Fail("null"); }
  bool boolean(bool) override { return Fail("a boolean"); }
  bool number_integer(number_integer_t) override { return Fail("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Fail("a fraction"); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("JSON error at byte ", position, " of the header"));
  }

 private:
  enum class State {
    kStart,
    kTop,
    kValue,
    kMetadata,
    kEntry,
    kDtype,
    kShape,
    kShapeItem,
    kOffsets,
    kOffsetItem,
    kDone
  };
  bool To(State state) {
    state_ = state;
    return true;
  }
  bool Fail(absl::string_view what) {
    if (error_.empty()) {
      error_ = name_.empty() ? std::string(what) : absl::StrCat("tensor ", name_, ": ", what);
    }
    return false;
  }

  SafetensorsFile* file_;
  State state_ = State::kStart;
  std::string name_;
  std::string metadata_key_;
  bool metadata_seen_ = false;
  Entry entry_;
  unsigned seen_ = 0;
  int offsets_ = 0;
  std::string error_;
};

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(std::string bytes) {
  if (bytes.size() < 8) {
    return Invalid(absl::StrCat("only ", bytes.size(), " bytes long, needs at least 8"));
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(bytes[i]);
  if (length > kMaxSafetensorsHeader || length > bytes.size() - 8) {
    return Invalid(absl::StrCat("header claims ", length, " bytes, the file has ", bytes.size() - 8,
                                " after the length"));
  }
  if (length == 0 || bytes[8] != '{') return Invalid("the header does not begin with '{'");
  SafetensorsFile file;
  HeaderReader reader(&file);
  const char* header = bytes.data() + 8;
  if (!nlohmann::json::sax_parse(header, header + length, &reader)) return Invalid(reader.error());
  file.buffer_ = static_cast<size_t>(8 + length);
  file.bytes_ = std::move(bytes);
  RETURN_IF_ERROR(file.CheckLayout());
  return file;
}

absl::Status SafetensorsFile::CheckLayout() const {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, entry] : entries_) {
    const std::optional<uint64_t> bytes = CheckedBytes(entry.dtype, entry.shape);
    if (!bytes.has_value() || entry.end < entry.begin || entry.end - entry.begin != *bytes) {
      return Invalid(absl::StrCat("tensor ", name, ": its shape does not fit its ", entry.begin,
                                  "..", entry.end, " bytes"));
    }
    ranges.emplace_back(entry.begin, entry.end);
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) {
      return Invalid(absl::StrCat("a tensor begins at byte ", begin, " of the buffer, expected ",
                                  covered, begin > covered ? " (hole)" : " (overlap)"));
    }
    covered = end;
  }
  if (covered != bytes_.size() - buffer_) {
    return Invalid(absl::StrCat("tensors end at byte ", covered, ", the buffer has ",
                                bytes_.size() - buffer_));
  }
  return absl::OkStatus();
}

std::vector<TensorView> SafetensorsFile::tensors() const {
  std::vector<TensorView> views;
  views.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) {
    views.push_back({name, entry.dtype, entry.shape, bytes_.data() + buffer_ + entry.begin});
  }
  return views;
}

}  // namespace trainctl

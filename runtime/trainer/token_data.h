// Samples of a token stream: windows of context + 1 tokens, each beginning with the last token of
// the one before, so that every token but the first is a target exactly once. Tokens after the last
// whole window are left out.
#ifndef TRAINCTL_RUNTIME_TRAINER_TOKEN_DATA_H_
#define TRAINCTL_RUNTIME_TRAINER_TOKEN_DATA_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/trainer/dataset.h"

namespace trainctl {

// Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;  // tokens
  virtual int64_t vocabulary() const = 0;
  // out[0, count) = tokens [begin, begin + count). REQUIRES: within size().
  virtual absl::Status Read(int64_t begin, int64_t count, int32_t* out) const = 0;
};

// The bytes of a UTF-8 file; vocabulary 256. INVALID_ARGUMENT names the first byte that is not
// UTF-8.
absl::StatusOr<std::shared_ptr<TokenSource>> OpenText(const std::string& path);

// A token file, all integers little-endian:
//   0  8 bytes  magic "TCTOKENS"
//   8  u32      version, 1
//  12  u32      vocabulary, 1 to 65536; every token is below it
//  16  u64      count of tokens
//  24  u16[count] tokens, to the end of the file
// The file is not held in memory. A token out of range is DATA_LOSS when it is read.
absl::StatusOr<std::shared_ptr<TokenSource>> OpenTokenFile(const std::string& path);

// Training and validation windows. `name` is for messages. INVALID_ARGUMENT: too few tokens for one
// window in each. REQUIRES: context >= 1.
absl::StatusOr<OpenedData> SplitTokens(std::shared_ptr<const TokenSource> source,
                                       const std::string& name, int64_t context, double validation);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_TOKEN_DATA_H_

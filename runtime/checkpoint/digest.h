// XXH3 128 of bytes given in pieces, printed with the algorithm's name. It finds damage; it is no
// defence against somebody who can write the files.
#ifndef TRAINCTL_RUNTIME_CHECKPOINT_DIGEST_H_
#define TRAINCTL_RUNTIME_CHECKPOINT_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

struct XXH3_state_s;

namespace trainctl {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Add(const void* data, size_t bytes);
  void Add(absl::string_view data) { Add(data.data(), data.size()); }
  std::string Text() const;  // "xxh3-128:<32 hex digits>"

 private:
  XXH3_state_s* state_;
};

std::string DigestOf(absl::string_view data);
uint64_t Digest64(const void* data, size_t bytes);  // XXH3 64

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_CHECKPOINT_DIGEST_H_

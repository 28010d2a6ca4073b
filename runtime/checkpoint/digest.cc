#include "runtime/checkpoint/digest.h"

#include <xxhash.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace trainctl {
namespace {

std::string Print(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return absl::StrCat(
      "xxh3-128:", absl::BytesToHexString(absl::string_view(
                       reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest))));
}

}  // namespace

Digest::Digest() : state_(XXH3_createState()) {
  CHECK(state_ != nullptr);
  XXH3_128bits_reset(state_);
}

Digest::~Digest() { XXH3_freeState(state_); }

void Digest::Add(const void* data, size_t bytes) { XXH3_128bits_update(state_, data, bytes); }

std::string Digest::Text() const { return Print(XXH3_128bits_digest(state_)); }

std::string DigestOf(absl::string_view data) {
  return Print(XXH3_128bits(data.data(), data.size()));
}

uint64_t Digest64(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace trainctl

#include "runtime/security/peer_name.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace trainctl {
namespace {

constexpr size_t kMaxNodeName = 253;

std::string Shown(absl::string_view text) { return absl::CHexEscape(text.substr(0, 80)); }

}  // namespace

std::string PeerName::ToString() const {
  return kind == Kind::kNode ? absl::StrCat("node:", node) : absl::StrCat("user:", uid);
}

bool IsNodeName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNodeName && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
                  c == '-';
         });
}

absl::StatusOr<PeerName> ParsePeerName(absl::string_view text) {
  absl::string_view rest = text;
  uint32_t uid = 0;
  if (absl::ConsumePrefix(&rest, "node:") && IsNodeName(rest)) return PeerName::Node(rest);
  if (absl::ConsumePrefix(&rest, "user:") && absl::SimpleAtoi(rest, &uid) &&
      absl::StrCat(uid) == rest) {
    return PeerName::User(uid);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found \"", Shown(text), "\", expected node:NAME or user:UID"));
}

absl::StatusOr<PeerName> PeerNameOf(const CertificateNames& names) {
  std::optional<PeerName> found;
  for (const std::string& uri : names.uris) {
    absl::StatusOr<PeerName> name = ParsePeerName(uri);
    if (!name.ok()) continue;
    if (found.has_value()) {
      return absl::UnauthenticatedError(
          absl::StrCat("a certificate names both ", found->ToString(), " and ", name->ToString()));
    }
    found = *std::move(name);
  }
  if (found.has_value()) return *found;
  const std::string& fallback = names.dns.empty() ? names.common_name : names.dns.front();
  if (IsNodeName(fallback)) return PeerName::Node(fallback);
  return absl::UnauthenticatedError(absl::StrCat(
      "a certificate names no node and no user (URI node:NAME or user:UID, DNS name or "
      "common name); its common name is \"",
      Shown(names.common_name), "\""));
}

}  // namespace trainctl

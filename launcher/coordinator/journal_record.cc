#include "launcher/coordinator/journal_record.h"

#include <cstddef>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/codec.h"

namespace trainctl {
namespace {

template <typename Archive, typename T>
requires std::is_arithmetic_v<std::remove_const_t<T>>
void Visit(Archive& a, T& value) { a.Field(value); }

template <typename Archive, typename T>
requires std::is_same_v<std::remove_const_t<T>, std::string>
void Visit(Archive& a, T& value) { a.Field(value); }

template <typename Archive, typename Tag>
void Visit(Archive& a, StrongId<Tag>& value) {
  a.Field(value.value);
}
template <typename Archive, typename Tag>
void Visit(Archive& a, const StrongId<Tag>& value) {
  a.Field(value.value);
}

// An enum outside its range is damage: kLast is the largest value of this version.
template <auto kLast>
void VisitEnum(Writer& a, const decltype(kLast)& value) {
  a.Field(static_cast<uint8_t>(value));
}
template <auto kLast>
void VisitEnum(Reader& a, decltype(kLast)& value) {
  uint8_t byte = 0;
  a.Field(byte);
  if (byte > static_cast<uint8_t>(kLast)) return a.Reject();
  value = static_cast<decltype(kLast)>(byte);
}

template <typename T, typename Wanted>
concept Same = std::is_same_v<std::remove_const_t<T>, Wanted>;

template <typename Archive, Same<WorkerExit> T>
void Visit(Archive& a, T& v);
template <typename Archive, Same<Failure> T>
void Visit(Archive& a, T& v);
template <typename Archive, Same<Outcome> T>
void Visit(Archive& a, T& v);
template <typename Archive, Same<std::vector<NodeShare>> T>
void Visit(Archive& a, T& v);
void Visit(Writer& a, const std::optional<Failure>& v);
void Visit(Reader& a, std::optional<Failure>& v);

template <typename Archive, typename... Fields>
void VisitAll(Archive& a, Fields&... fields) {
  (Visit(a, fields), ...);
}

template <typename Archive, Same<WorkerExit> T>
void Visit(Archive& a, T& v) {
  VisitEnum<WorkerExit::Kind::kLost>(a, v.kind);
  VisitAll(a, v.code, v.core, v.by_us, v.exit_ns, v.wall_ns, v.message, v.output_tail,
           v.error_json);
}

template <typename Archive, Same<Failure> T>
void Visit(Archive& a, T& v) {
  VisitEnum<FailureClass::kGpuOutOfMemory>(a, v.failure_class);
  VisitAll(a, v.node, v.rank, v.epoch, v.exit, v.reason);
}

void Visit(Writer& a, const std::optional<Failure>& v) {
  a.Field(v.has_value());
  if (v) Visit(a, *v);
}
void Visit(Reader& a, std::optional<Failure>& v) {
  bool present = false;
  a.Field(present);
  if (present) Visit(a, v.emplace());
}

template <typename Archive, Same<Outcome> T>
void Visit(Archive& a, T& v) {
  VisitEnum<Outcome::Kind::kPreempted>(a, v.kind);
  VisitAll(a, v.exit_status, v.reason, v.failure);
}

template <typename Archive, Same<NodeShare> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.node, v.machine, v.address, v.first_rank, v.workers, v.interface);
}

template <typename Archive, Same<std::vector<NodeShare>> T>
void Visit(Archive& a, T& v) {
  a.Count(v);
  for (auto& share : v) Visit(a, share);
}

template <typename Archive, Same<TermStarted> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.term);
}
template <typename Archive, Same<EpochFormed> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.epoch, v.nodes, v.master_address, v.master_port, v.reason, v.wall_ns,
           v.resume_step);
}
template <typename Archive, Same<EpochStarted> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.epoch);
}
template <typename Archive, Same<EpochReplaced> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.epoch, v.reason, v.wall_ns, v.last_step);
}
template <typename Archive, Same<NodeDrained> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.node, v.drained, v.wall_ns);
}
template <typename Archive, Same<EpochCondemned> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.epoch, v.failure, v.wall_ns, v.last_step);
}
template <typename Archive, Same<CommitGranted> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.epoch, v.step);
}
template <typename Archive, Same<CheckpointCommitted> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.epoch, v.step);
}
template <typename Archive, Same<CheckpointDropped> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.step, v.damaged, v.reason);
}
template <typename Archive, Same<Stopping> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.reason, v.checkpoint, v.preempted);
}
template <typename Archive, Same<Finished> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.outcome, v.wall_ns);
}

template <typename Archive, Same<NodeLost> T>
void Visit(Archive& a, T& v) {
  VisitAll(a, v.epoch, v.node, v.wall_ns);
}

template <size_t kIndex = 0>
bool DecodeAlternative(size_t type, Reader& reader, JournalRecord& record) {
  if constexpr (kIndex < std::variant_size_v<JournalRecord>) {
    if (type != kIndex) return DecodeAlternative<kIndex + 1>(type, reader, record);
    Visit(reader, record.emplace<kIndex>());
    return true;
  }
  return false;
}

}  // namespace

const char* FailureClassName(FailureClass failure_class) {
  switch (failure_class) {
    case FailureClass::kWorker:
      return "worker";
    case FailureClass::kUserError:
      return "user error";
    case FailureClass::kOutOfMemory:
      return "out of memory";
    case FailureClass::kHang:
      return "hang";
    case FailureClass::kNodeLost:
      return "node lost";
    case FailureClass::kNetwork:
      return "network";
    case FailureClass::kDisk:
      return "disk";
    case FailureClass::kPreempted:
      return "preempted";
    case FailureClass::kInternal:
      return "internal";
    case FailureClass::kHardware:
      return "hardware";
    case FailureClass::kGpuOutOfMemory:
      return "GPU out of memory";
  }
  return "unknown";
}

const char* OutcomeName(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::kSucceeded:
      return "succeeded";
    case Outcome::Kind::kFailed:
      return "failed";
    case Outcome::Kind::kStopped:
      return "stopped";
    case Outcome::Kind::kPreempted:
      return "preempted";
  }
  return "unknown";
}

std::vector<RankPlace> RanksOf(const EpochFormed& epoch) {
  std::vector<RankPlace> ranks;
  for (const NodeShare& share : epoch.nodes) {
    for (int i = 0; i < share.workers; ++i) {
      ranks.push_back({share.first_rank + i, i, share.node, share.address});
    }
  }
  return ranks;
}

std::string EncodeRecord(const JournalRecord& record) {
  Writer writer;
  writer.Field(static_cast<uint8_t>(record.index()));
  std::visit([&](const auto& r) { Visit(writer, r); }, record);
  return writer.Take();
}

absl::StatusOr<JournalRecord> DecodeRecord(absl::string_view bytes) {
  Reader reader(bytes);
  uint8_t type = 0;
  reader.Field(type);
  JournalRecord record;
  if (!reader.ok() || !DecodeAlternative(type, reader, record)) {
    return absl::DataLossError(absl::StrCat("decode journal record: unknown type ", type));
  }
  if (!reader.AtEnd()) {
    return absl::DataLossError(absl::StrCat("decode journal record of type ", type, ": its ",
                                            bytes.size(), " bytes do not fit its fields"));
  }
  return record;
}

}  // namespace trainctl

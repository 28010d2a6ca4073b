#include "runtime/local/frames.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/codec.h"

namespace trainctl::frame {
namespace {

template <typename T, typename U>
concept Is = std::is_same_v<std::remove_const_t<T>, U>;

// One list of fields per type serves writing and reading: A is Writer with const values or Reader
// with mutable ones. Members of a struct, so that each may call any other.
struct Layout {
  template <typename A, typename T>
  static void Visit(A& a, T& value) requires std::is_arithmetic_v<std::remove_const_t<T>> ||
      std::is_enum_v<std::remove_const_t<T>> ||
      std::is_same_v<std::remove_const_t<T>, std::string> {
    a.Field(value);
  }

  template <typename T>
  static void VisitAll(Writer& a, const std::vector<T>& values) {
    a.Count(values);
    for (const T& value : values) Visit(a, value);
  }
  // One by one, so that memory grows with the bytes that decode and not with a count that lies.
  template <typename T>
  static void VisitAll(Reader& a, std::vector<T>& values) {
    uint32_t left = 0;
    for (a.Field(left); left > 0 && a.ok(); --left) {
      values.emplace_back();
      Visit(a, values.back());
    }
  }

  template <typename A, typename... T>
  static void Fields(A& a, T&... values) {
    (Visit(a, values), ...);
  }

  template <typename A>
  static void Visit(A& a, Is<Exit> auto& v) {
    Fields(a, v.kind, v.code, v.core, v.by_us, v.message);
  }
  template <typename A>
  static void Visit(A& a, Is<Shard> auto& v) {
    Fields(a, v.rank, v.file, v.length, v.digest);
  }
  template <typename A>
  static void Visit(A& a, Is<Hello> auto& v) {
    Fields(a, v.version, v.incarnation, v.rank);
  }
  template <typename A>
  static void Visit(A& a, Is<Launch> auto& v) {
    Fields(a, v.rank, v.local_rank, v.numa);
    VisitAll(a, v.argv);
    VisitAll(a, v.env);
    VisitAll(a, v.cpus);
  }
  template <typename A>
  static void Visit(A& a, Is<StartEpoch> auto& v) {
    Fields(a, v.term, v.epoch, v.world_size, v.cwd, v.log_folder, v.memory_limit, v.process_limit,
           v.log_quota, v.hang_timeout_ns);
    VisitAll(a, v.env);
    VisitAll(a, v.workers);
  }
  template <typename A>
  static void Visit(A& a, Is<StopEpoch> auto& v) {
    Fields(a, v.term, v.epoch, v.grace_ns, v.abort);
  }
  template <typename A>
  static void Visit(A& a, Is<LeaseAnswer> auto& v) {
    Fields(a, v.request_id, v.term, v.granted, v.lease_ns);
  }
  template <typename A>
  static void Visit(A& a, Is<PageRequest> auto& v) {
    Fields(a, v.epoch, v.stop, v.checkpoint);
  }
  template <typename A>
  static void Visit(A& a, Is<SignalWorkers> auto& v) {
    Fields(a, v.epoch, v.signo);
    VisitAll(a, v.ranks);
  }
  template <typename A>
  static void Visit(A& a, Is<OutputFrom> auto& v) {
    Fields(a, v.epoch, v.rank, v.stream, v.offset, v.limit);
  }
  template <typename A>
  static void Visit(A&, Is<Release> auto&) {}
  template <typename A>
  static void Visit(A&, Is<Ping> auto&) {}
  template <typename A>
  static void Visit(A&, Is<Pong> auto&) {}
  template <typename A>
  static void Visit(A& a, Is<ExchangeDone> auto& v) {
    Fields(a, v.epoch, v.name, v.error);
    VisitAll(a, v.values);
  }
  template <typename A>
  static void Visit(A& a, Is<CommitGranted> auto& v) {
    Fields(a, v.epoch, v.term, v.step);
    VisitAll(a, v.shards);
    VisitAll(a, v.may_delete);
  }
  template <typename A>
  static void Visit(A& a, Is<Exchange> auto& v) {
    Fields(a, v.epoch, v.rank, v.name, v.value, v.timeout_ns);
  }
  template <typename A>
  static void Visit(A& a, Is<ShardPrepared> auto& v) {
    Fields(a, v.epoch, v.step, v.shard);
  }
  template <typename A>
  static void Visit(A& a, Is<CheckpointPublished> auto& v) {
    Fields(a, v.epoch, v.step);
  }
  template <typename A>
  static void Visit(A& a, Is<CheckpointRejected> auto& v) {
    Fields(a, v.epoch, v.step, v.reason);
  }
  template <typename A>
  static void Visit(A& a, Is<Metric> auto& v) {
    Fields(a, v.epoch, v.rank, v.name, v.value);
  }
  template <typename A>
  static void Visit(A& a, Is<Note> auto& v) {
    Fields(a, v.epoch, v.rank, v.text);
  }
  template <typename A>
  static void Visit(A& a, Is<SlotState> auto& v) {
    Fields(a, v.rank, v.local_rank, v.pid, v.running, v.exit, v.exit_ns, v.output_tail,
           v.error_json);
  }
  template <typename A>
  static void Visit(A& a, Is<ShimState> auto& v) {
    Fields(a, v.version, v.job_id, v.term, v.epoch, v.gone, v.unkillable, v.reserved_port);
    VisitAll(a, v.slots);
    VisitAll(a, v.exchanges);
  }
  template <typename A>
  static void Visit(A& a, Is<EpochStarted> auto& v) {
    Fields(a, v.epoch, v.reserved_port);
    VisitAll(a, v.slots);
  }
  template <typename A>
  static void Visit(A& a, Is<WorkerExited> auto& v) {
    Fields(a, v.epoch, v.rank, v.exit, v.exit_ns, v.output_tail, v.error_json);
  }
  template <typename A>
  static void Visit(A& a, Is<EpochGone> auto& v) {
    Fields(a, v.epoch);
  }
  template <typename A>
  static void Visit(A& a, Is<Output> auto& v) {
    Fields(a, v.epoch, v.rank, v.stream, v.offset, v.skipped, v.bytes);
  }
  template <typename A>
  static void Visit(A& a, Is<Progress> auto& v) {
    Fields(a, v.epoch, v.rank, v.step, v.total_steps, v.samples, v.loss, v.data_epoch, v.phase,
           v.resumed, v.first_step_ns);
  }
  template <typename A>
  static void Visit(A& a, Is<LeaseRequest> auto& v) {
    Fields(a, v.request_id);
  }
  template <typename A>
  static void Visit(A& a, Is<Unkillable> auto& v) {
    Fields(a, v.epoch, v.which);
  }
  template <typename A>
  static void Visit(A& a, Is<DiagnoseWorkers> auto& v) {
    Fields(a, v.epoch);
  }
  template <typename A>
  static void Visit(A& a, Is<HangSuspected> auto& v) {
    Fields(a, v.epoch, v.rank, v.step, v.reason);
  }
  template <typename A>
  static void Visit(A& a, Is<RankEvidence> auto& v) {
    Fields(a, v.rank, v.phase, v.phase_ns, v.step, v.collectives, v.in_collective, v.stopped,
           v.collective);
  }
  template <typename A>
  static void Visit(A& a, Is<WorkersDiagnosed> auto& v) {
    Fields(a, v.epoch);
    VisitAll(a, v.ranks);
  }
};

template <size_t I = 0>
std::optional<Frame> DecodePayload(size_t type, Reader& reader) {
  if constexpr (I < std::variant_size_v<Frame>) {
    if (type != I) return DecodePayload<I + 1>(type, reader);
    std::variant_alternative_t<I, Frame> value;
    Layout::Visit(reader, value);
    return value;
  } else {
    return std::nullopt;
  }
}

}  // namespace

std::string Encode(const Frame& frame) {
  Writer writer;
  uint32_t size = 0;
  writer.Field(size);  // known once the rest is written
  writer.Field(static_cast<uint16_t>(frame.index()));
  std::visit([&writer](const auto& value) { Layout::Visit(writer, value); }, frame);
  std::string out = writer.Take();
  size = static_cast<uint32_t>(out.size() - sizeof(size));
  std::memcpy(out.data(), &size, sizeof(size));
  return out;
}

absl::StatusOr<std::optional<Frame>> Decoder::Next() {
  uint32_t size;
  if (buffer_.size() - consumed_ < sizeof(size)) return NeedMore();
  std::memcpy(&size, buffer_.data() + consumed_, sizeof(size));
  if (size < sizeof(uint16_t) || size > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of ", size, " bytes; the limit is ", kMaxFrameBytes));
  }
  if (buffer_.size() - consumed_ - sizeof(size) < size) return NeedMore();
  Reader reader(absl::string_view(buffer_.data() + consumed_ + sizeof(size), size));
  uint16_t type = 0;
  reader.Field(type);
  std::optional<Frame> frame = DecodePayload(type, reader);
  if (!frame.has_value())
    return absl::InvalidArgumentError(absl::StrCat("unknown frame type ", type));
  if (!reader.AtEnd()) {
    return absl::InvalidArgumentError(absl::StrCat("frame of type ", type, " does not decode"));
  }
  consumed_ += sizeof(size) + size;
  return frame;
}

std::nullopt_t Decoder::NeedMore() {
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  return std::nullopt;
}

}  // namespace trainctl::frame

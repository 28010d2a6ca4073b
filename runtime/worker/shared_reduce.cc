#include "runtime/worker/shared_reduce.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/status.h"
#include "runtime/worker/rank_order_sum.h"

namespace trainctl {
namespace {

constexpr uint32_t kMagic = 0x52534854;  // "THSR"
constexpr size_t kSharedPieceBytes = size_t{512} << 10;
// Up to this size every rank sums everything itself: one wait instead of two.
constexpr size_t kOneWaitBytes = size_t{32} << 10;
constexpr size_t kControlBytes = 128;  // no two ranks write one cache line, nor its neighbour

struct Section {
  size_t begin = 0;
  size_t size = 0;
};

// The part of a piece that `rank` sums.
Section Part(int rank, int ranks, size_t count) {
  const size_t n = static_cast<size_t>(ranks);
  const size_t each = ((count + n - 1) / n + 15) / 16 * 16;
  const size_t begin = std::min(count, each * static_cast<size_t>(rank));
  return {begin, std::min(each, count - begin)};
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t value, Duration patience) {
  const timespec relative = {patience.count() / 1'000'000'000, patience.count() % 1'000'000'000};
  ::syscall(SYS_futex, word, FUTEX_WAIT, value, &relative, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

struct SharedReduce::Header {
  uint32_t magic;
  uint32_t ranks;
  uint64_t nonce;  // tells this memory from another process's descriptor of the same number
};

// Counters of one rank; only `doorbell` is written by others too.
struct SharedReduce::Control {
  std::atomic<uint32_t> terms;     // pieces for which this rank has given its terms
  std::atomic<uint32_t> sums;      // pieces of which it has summed its part
  std::atomic<uint32_t> doorbell;  // changes whenever this rank should look again
  std::atomic<uint32_t> asleep;
  CollectiveShape shapes[2];  // of a piece, while its terms lie there
  // The newest collective of this rank that went another way; `elsewhere` is its number.
  std::atomic<uint64_t> elsewhere;
  std::atomic<uint64_t> elsewhere_bytes;
  std::atomic<CollectiveOp> elsewhere_op;
};

namespace {

size_t TotalBytes(int ranks) {
  return kControlBytes * (1 + static_cast<size_t>(ranks)) +
         kSharedPieceBytes * 2 * (1 + static_cast<size_t>(ranks));
}

absl::StatusOr<void*> Map(int fd, int ranks) {
  void* memory = ::mmap(nullptr, TotalBytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "map the workers' shared memory");
  return memory;
}

}  // namespace

SharedReduce::SharedReduce(Fd fd, void* memory, int rank, int ranks)
    : fd_(std::move(fd)), memory_(static_cast<char*>(memory)), rank_(rank), ranks_(ranks) {}

SharedReduce::~SharedReduce() { ::munmap(memory_, TotalBytes(ranks_)); }

absl::StatusOr<std::unique_ptr<SharedReduce>> SharedReduce::Create(int rank, int ranks) {
  static_assert(sizeof(Control) <= kControlBytes && sizeof(Header) <= kControlBytes);
  Fd fd(::memfd_create("trainctl-reduce", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "create the workers' shared memory");
  if (::ftruncate(fd.get(), static_cast<off_t>(TotalBytes(ranks))) < 0) {
    return ErrnoStatus(errno, "size the workers' shared memory");
  }
  ASSIGN_OR_RETURN(void* memory, Map(fd.get(), ranks));
  uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) {
    return ErrnoStatus(errno, "draw a random number");
  }
  *static_cast<Header*>(memory) = {kMagic, static_cast<uint32_t>(ranks), nonce};
  const std::string location = absl::StrCat("/proc/", ::getpid(), "/fd/", fd.get(), " ", nonce);
  std::unique_ptr<SharedReduce> made(new SharedReduce(std::move(fd), memory, rank, ranks));
  made->location_ = location;
  return made;
}

absl::StatusOr<std::unique_ptr<SharedReduce>> SharedReduce::Open(const std::string& location,
                                                                 int rank, int ranks) {
  const auto unreachable = [&location](absl::string_view found) {
    return absl::UnavailableError(
        absl::StrCat("open the workers' shared memory at ", location, ": ", found));
  };
  const std::vector<std::string> parts = absl::StrSplit(location, ' ');
  uint64_t nonce = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &nonce)) return unreachable("no location");
  Fd fd(::open(parts[0].c_str(), O_RDWR | O_CLOEXEC));
  struct stat info;
  if (!fd.valid() || ::fstat(fd.get(), &info) < 0) {
    return unreachable(ErrnoStatus(errno, "open").message());
  }
  if (!S_ISREG(info.st_mode) || static_cast<size_t>(info.st_size) != TotalBytes(ranks)) {
    return unreachable("something else is there");
  }
  ASSIGN_OR_RETURN(void* memory, Map(fd.get(), ranks));
  std::unique_ptr<SharedReduce> opened(new SharedReduce(std::move(fd), memory, rank, ranks));
  const Header* header = static_cast<const Header*>(memory);
  if (header->magic != kMagic || header->nonce != nonce ||
      header->ranks != static_cast<uint32_t>(ranks)) {
    return unreachable("something else is there");
  }
  opened->location_ = location;
  return opened;
}

SharedReduce::Control& SharedReduce::control(int rank) const {
  return *reinterpret_cast<Control*>(memory_ + kControlBytes * (1 + static_cast<size_t>(rank)));
}

char* SharedReduce::Sums(uint32_t piece) const {
  return memory_ + kControlBytes * (1 + static_cast<size_t>(ranks_)) +
         kSharedPieceBytes * (piece % 2);
}

char* SharedReduce::Terms(int rank, uint32_t piece) const {
  return Sums(piece) + kSharedPieceBytes * 2 * (1 + static_cast<size_t>(rank));
}

void SharedReduce::Wake() {
  Control& own = control(rank_);
  own.doorbell.fetch_add(1);
  FutexWake(&own.doorbell);
}

void SharedReduce::Publish(bool sums, uint32_t pieces) {
  Control& own = control(rank_);
  (sums ? own.sums : own.terms).store(pieces);
  RingOthers();
}

void SharedReduce::RingOthers() {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    Control& other = control(rank);
    other.doorbell.fetch_add(1);
    if (other.asleep.load() != 0) FutexWake(&other.doorbell);
  }
}

void SharedReduce::BeginElsewhere(const CollectiveShape& shape) {
  Control& own = control(rank_);
  own.elsewhere_bytes.store(shape.bytes);
  own.elsewhere_op.store(shape.op);
  own.elsewhere.store(shape.number);
  RingOthers();
}

absl::Status SharedReduce::CheckNotElsewhere(int rank) {
  const Control& other = control(rank);
  CollectiveShape theirs;
  theirs.number = other.elsewhere.load();
  if (theirs.number < shape_.number) return absl::OkStatus();
  theirs.bytes = other.elsewhere_bytes.load();
  theirs.op = other.elsewhere_op.load();
  return CompareShapes(rank_, shape_, rank, theirs);
}

absl::Status SharedReduce::WaitFor(int rank, bool sums, uint32_t piece, Instant deadline,
                                   const Check& check) {
  Control& own = control(rank_);
  const std::atomic<uint32_t>& counter = sums ? control(rank).sums : control(rank).terms;
  const auto arrived = [&] { return static_cast<int32_t>(counter.load() - (piece + 1)) >= 0; };
  while (!arrived()) {
    const uint32_t rung = own.doorbell.load();
    own.asleep.store(1);
    // Whoever publishes after this look rings a bell that is no longer `rung`.
    if (!arrived()) {
      absl::Status status = CheckNotElsewhere(rank);
      status.Update(check(rank, deadline));
      if (!status.ok()) {
        own.asleep.store(0);
        // What a rank gave before it ended counts.
        return arrived() ? absl::OkStatus() : status;
      }
      FutexWait(&own.doorbell, rung, std::max(deadline - Now(), Duration(1)));
    }
    own.asleep.store(0);
  }
  return absl::OkStatus();
}

absl::Status SharedReduce::WaitForTerms(int rank, uint32_t piece, Instant deadline,
                                        const Check& check) {
  RETURN_IF_ERROR(WaitFor(rank, /*sums=*/false, piece, deadline, check));
  return CompareShapes(rank_, shape_, rank, control(rank).shapes[piece % 2]);
}

void SharedReduce::PublishTerms(uint32_t piece) {
  control(rank_).shapes[piece % 2] = shape_;
  Publish(/*sums=*/false, piece + 1);
}

template <typename T>
absl::Status SharedReduce::OneHop(T* data, size_t count, Instant deadline, const Check& check) {
  const uint32_t piece = pieces_++;
  RETURN_IF_ERROR(AwaitSums(piece - 2, deadline, check));
  std::memcpy(Terms(rank_, piece), data, count * sizeof(T));
  PublishTerms(piece);
  std::vector<const T*> sources;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) RETURN_IF_ERROR(WaitForTerms(rank, piece, deadline, check));
    sources.push_back(reinterpret_cast<const T*>(Terms(rank, piece)));
  }
  SumInRankOrder(sources, data, count);
  Publish(/*sums=*/true, piece + 1);
  return absl::OkStatus();
}

// The memory of a piece's terms is used again two pieces later: then everybody must have read them.
// That of its sums is free when everybody has given terms for the piece two later, because a rank
// takes the sums of a piece before it gives terms for the second one after it.
absl::Status SharedReduce::AwaitSums(uint32_t piece, Instant deadline, const Check& check) {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) RETURN_IF_ERROR(WaitFor(rank, /*sums=*/true, piece, deadline, check));
  }
  return absl::OkStatus();
}

// Everything but the part that this rank sums itself.
template <typename T>
absl::Status SharedReduce::GiveTerms(const T* data, size_t count, uint32_t piece, Instant deadline,
                                     const Check& check) {
  RETURN_IF_ERROR(AwaitSums(piece - 2, deadline, check));
  T* const terms = reinterpret_cast<T*>(Terms(rank_, piece));
  const Section own = Part(rank_, ranks_, count);
  const size_t after = own.begin + own.size;
  std::memcpy(terms, data, own.begin * sizeof(T));
  std::memcpy(terms + after, data + after, (count - after) * sizeof(T));
  PublishTerms(piece);
  return absl::OkStatus();
}

template <typename T>
absl::Status SharedReduce::SumPart(T* data, size_t count, uint32_t piece, Instant deadline,
                                   const Check& check) {
  const Section own = Part(rank_, ranks_, count);
  std::vector<const T*> sources;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) {
      sources.push_back(data + own.begin);
      continue;
    }
    RETURN_IF_ERROR(WaitForTerms(rank, piece, deadline, check));
    sources.push_back(reinterpret_cast<const T*>(Terms(rank, piece)) + own.begin);
  }
  SumInRankOrder(sources, data + own.begin, own.size);
  std::memcpy(reinterpret_cast<T*>(Sums(piece)) + own.begin, data + own.begin,
              own.size * sizeof(T));
  Publish(/*sums=*/true, piece + 1);
  return absl::OkStatus();
}

template <typename T>
absl::Status SharedReduce::TakeSums(T* data, size_t count, uint32_t piece, Instant deadline,
                                    const Check& check) {
  const T* const sums = reinterpret_cast<const T*>(Sums(piece));
  for (int i = 1; i < ranks_; ++i) {
    const int rank = (rank_ + i) % ranks_;
    RETURN_IF_ERROR(WaitFor(rank, /*sums=*/true, piece, deadline, check));
    const Section part = Part(rank, ranks_, count);
    std::memcpy(data + part.begin, sums + part.begin, part.size * sizeof(T));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status SharedReduce::AllReduceSum(T* data, size_t count, const CollectiveShape& shape,
                                        Instant deadline, const Check& check) {
  shape_ = shape;
  if (count * sizeof(T) <= kOneWaitBytes) return OneHop(data, count, deadline, check);
  const size_t elements = kSharedPieceBytes / sizeof(T);
  const size_t pieces = (count + elements - 1) / elements;
  const auto size = [&](size_t p) { return std::min(elements, count - p * elements); };
  const uint32_t first = std::exchange(pieces_, pieces_ + static_cast<uint32_t>(pieces));
  RETURN_IF_ERROR(GiveTerms(data, size(0), first, deadline, check));
  for (size_t p = 0; p < pieces; ++p) {
    const uint32_t piece = first + static_cast<uint32_t>(p);
    T* const here = data + p * elements;
    // Given before this rank waits, so that the others always have something to sum.
    if (p + 1 < pieces) {
      RETURN_IF_ERROR(GiveTerms(here + elements, size(p + 1), piece + 1, deadline, check));
    }
    RETURN_IF_ERROR(SumPart(here, size(p), piece, deadline, check));
    RETURN_IF_ERROR(TakeSums(here, size(p), piece, deadline, check));
  }
  return absl::OkStatus();
}

template absl::Status SharedReduce::AllReduceSum(float*, size_t, const CollectiveShape&, Instant,
                                                 const Check&);
template absl::Status SharedReduce::AllReduceSum(double*, size_t, const CollectiveShape&, Instant,
                                                 const Check&);

}  // namespace trainctl

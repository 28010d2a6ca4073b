#include "runtime/local/page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace trainctl {

static_assert(std::atomic<double>::is_always_lock_free);
static_assert(offsetof(WorkerPage, step) == 8);
static_assert(offsetof(WorkerPage, total_steps) == 16);
static_assert(offsetof(WorkerPage, samples) == 24);
static_assert(offsetof(WorkerPage, loss) == 32);
static_assert(offsetof(WorkerPage, data_epoch) == 40);
static_assert(offsetof(WorkerPage, phase) == 48);
static_assert(offsetof(WorkerPage, resumed) == 52);
static_assert(offsetof(WorkerPage, phase_since_ns) == 56);
static_assert(offsetof(WorkerPage, first_step_ns) == 64);
static_assert(offsetof(WorkerPage, gpu_memory_bytes) == 72);
static_assert(offsetof(WorkerPage, collectives) == 80);
static_assert(offsetof(WorkerPage, epoch) == 88);
static_assert(offsetof(WorkerPage, stop_requested) == 96);
static_assert(offsetof(WorkerPage, checkpoint_requested) == 100);
static_assert(offsetof(WorkerPage, ring) == 232);
static_assert(sizeof(CollectiveRecord) == 48);

const char* CollectiveOpName(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllReduce:
      return "all-reduce";
    case CollectiveOp::kReduceScatter:
      return "reduce-scatter";
    case CollectiveOp::kAllGather:
      return "all-gather";
    case CollectiveOp::kBroadcast:
      return "broadcast";
    case CollectiveOp::kBarrier:
      return "barrier";
  }
  return "unknown collective";
}

const char* WorkerPhaseName(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kNone:
      return "none";
    case WorkerPhase::kInit:
      return "init";
    case WorkerPhase::kData:
      return "data";
    case WorkerPhase::kForward:
      return "forward";
    case WorkerPhase::kBackward:
      return "backward";
    case WorkerPhase::kCollective:
      return "collective";
    case WorkerPhase::kOptimizer:
      return "optimizer";
    case WorkerPhase::kCheckpoint:
      return "checkpoint";
    case WorkerPhase::kEvaluate:
      return "evaluate";
    case WorkerPhase::kIdle:
      return "idle";
  }
  return "unknown";
}

absl::StatusOr<MappedPage> MappedPage::FromFd(int fd) {
  struct stat info;
  if (::fstat(fd, &info) < 0) return ErrnoStatus(errno, "stat worker page");
  if (static_cast<size_t>(info.st_size) < sizeof(WorkerPage)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker page has ", info.st_size, " bytes, needs ", sizeof(WorkerPage)));
  }
  void* address = ::mmap(nullptr, sizeof(WorkerPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, "map worker page");
  MappedPage page(static_cast<WorkerPage*>(address));
  if (page->magic != kPageMagic || page->version != kPageVersion) {
    return absl::InvalidArgumentError(absl::StrCat("worker page has magic ", page->magic,
                                                   " version ", page->version,
                                                   "; this program speaks version ", kPageVersion));
  }
  return page;
}

absl::StatusOr<MappedPage> MappedPage::Open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open worker page ", path));
  return FromFd(fd.get());
}

absl::StatusOr<MappedPage> MappedPage::Create(int* fd) {
  Fd created(::memfd_create("trainctl-page", MFD_CLOEXEC));
  if (!created.valid()) return ErrnoStatus(errno, "create memfd for worker page");
  if (::ftruncate(created.get(), sizeof(WorkerPage)) < 0)
    return ErrnoStatus(errno, "size worker page");
  const uint32_t header[2] = {kPageMagic, kPageVersion};
  if (::pwrite(created.get(), header, sizeof(header), 0) != sizeof(header)) {
    return ErrnoStatus(errno, "write worker page");
  }
  ASSIGN_OR_RETURN(MappedPage page, FromFd(created.get()));
  *fd = created.Release();
  return page;
}

MappedPage::MappedPage(MappedPage&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}

MappedPage& MappedPage::operator=(MappedPage&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}

MappedPage::~MappedPage() {
  if (page_ != nullptr) ::munmap(page_, sizeof(WorkerPage));
}

void MappedPage::Reset(int64_t epoch) {
  char* begin = reinterpret_cast<char*>(page_) + offsetof(WorkerPage, step);
  std::memset(begin, 0, sizeof(WorkerPage) - offsetof(WorkerPage, step));
  page_->epoch.store(epoch);
}

}  // namespace trainctl

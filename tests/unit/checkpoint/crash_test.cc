// Stops a job's checkpointing at every single disk operation, by SIGKILL, by failing the operation
// and by a power cut, and proves each time that a reader finds the last committed step, whole.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <random>

#include "absl/strings/match.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

constexpr int64_t kSteps[] = {100, 200, 300};
constexpr int64_t kReplaced = 200;  // committed a second time by the next epoch

// Three commits, the same step again in a later epoch, and retention: every path of the writer.
absl::Status RunJob(const std::string& folder, Disk& disk,
                    const std::function<void(Step)>& committed) {
  CheckpointWriter first(folder, Epoch(0), disk);
  for (int64_t step : kSteps) {
    RETURN_IF_ERROR(WriteSample(first, Step(step), Epoch(0)));
    committed(Step(step));
  }
  CheckpointWriter second(folder, Epoch(1), disk);
  RETURN_IF_ERROR(second.Sweep());
  RETURN_IF_ERROR(WriteSample(second, Step(kReplaced), Epoch(1)));
  RETURN_IF_ERROR(second.Delete(Step(100)));
  RETURN_IF_ERROR(WriteSample(second, Step(400), Epoch(1)));
  committed(Step(400));
  return absl::OkStatus();
}

// OK if the newest checkpoint is whole and at least `last`, and every visible one is whole.
absl::Status CheckFolder(const std::string& folder, Step last) {
  ASSIGN_OR_RETURN(const CheckpointSearch search, NewestValid(folder));
  if (!search.rejected.empty()) {
    return absl::DataLossError(absl::StrCat("visible but damaged: ", search.rejected[0].reason));
  }
  const Step found = search.found.has_value() ? search.found->manifest.step : Step(0);
  if (found < last) {
    return absl::DataLossError(absl::StrCat("found ", found.value, ", committed ", last.value));
  }
  ASSIGN_OR_RETURN(const std::vector<Step> steps, ListCheckpoints(folder));
  for (Step step : steps) {
    ASSIGN_OR_RETURN(const FoundCheckpoint checkpoint, OpenCheckpoint(folder, step));
    RETURN_IF_ERROR(CheckSample(checkpoint));
  }
  return absl::OkStatus();
}

enum class Operation {
  kMakeFolder,
  kCreate,
  kWrite,
  kSyncFile,
  kSyncFolder,
  kRename,
  kExchange,
  kRemoveFile,
  kRemoveFolder
};

// Asks before every operation; an error is returned instead of doing it.
class AskingDisk : public Disk {
 public:
  using Ask = std::function<absl::Status(Operation, const std::string& a, const std::string& b)>;
  explicit AskingDisk(Ask ask) : ask_(std::move(ask)) {}

  absl::Status MakeFolder(const std::string& path) override {
    RETURN_IF_ERROR(ask_(Operation::kMakeFolder, path, ""));
    return Disk::MakeFolder(path);
  }
  absl::StatusOr<Fd> CreateFile(const std::string& path) override {
    RETURN_IF_ERROR(ask_(Operation::kCreate, path, ""));
    return Disk::CreateFile(path);
  }
  absl::Status Write(const Fd& file, absl::string_view data, const std::string& path) override {
    // Half a write is as possible as none.
    RETURN_IF_ERROR(ask_(Operation::kWrite, path, std::string(data.substr(0, data.size() / 2))));
    RETURN_IF_ERROR(Disk::Write(file, data.substr(0, data.size() / 2), path));
    data.remove_prefix(data.size() / 2);
    RETURN_IF_ERROR(ask_(Operation::kWrite, path, std::string(data)));
    return Disk::Write(file, data, path);
  }
  absl::Status SyncFile(const Fd& file, const std::string& path) override {
    RETURN_IF_ERROR(ask_(Operation::kSyncFile, path, ""));
    return Disk::SyncFile(file, path);
  }
  absl::Status SyncFolder(const std::string& path) override {
    RETURN_IF_ERROR(ask_(Operation::kSyncFolder, path, ""));
    return Disk::SyncFolder(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    RETURN_IF_ERROR(ask_(Operation::kRename, from, to));
    return Disk::Rename(from, to);
  }
  absl::Status Exchange(const std::string& a, const std::string& b) override {
    RETURN_IF_ERROR(ask_(Operation::kExchange, a, b));
    return Disk::Exchange(a, b);
  }
  absl::Status RemoveFile(const std::string& path) override {
    RETURN_IF_ERROR(ask_(Operation::kRemoveFile, path, ""));
    return Disk::RemoveFile(path);
  }
  absl::Status RemoveFolder(const std::string& path) override {
    RETURN_IF_ERROR(ask_(Operation::kRemoveFolder, path, ""));
    return Disk::RemoveFolder(path);
  }

 private:
  Ask ask_;
};

std::vector<Operation> OperationsOfAJob() {
  Scratch scratch;
  std::vector<Operation> operations;
  AskingDisk disk([&](Operation operation, auto...) {
    operations.push_back(operation);
    return absl::OkStatus();
  });
  EXPECT_TRUE(RunJob(scratch.path(), disk, [](Step) {}).ok());
  return operations;
}

TEST(Crash, SigkillAtEveryOperationLeavesTheLastCommittedStep) {
  const int operations = static_cast<int>(OperationsOfAJob().size());
  ASSERT_GE(operations, 200);
  for (int victim = 0; victim < operations; ++victim) {
    Scratch scratch;
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      int count = 0;
      AskingDisk disk([&](auto...) {
        if (count++ == victim) ::raise(SIGKILL);
        return absl::OkStatus();
      });
      RunJob(scratch.path(), disk, [&](Step step) {
        if (::write(pipe_ends[1], &step.value, sizeof(step.value)) < 0) ::_exit(2);
      }).IgnoreError();
      ::_exit(1);
    }
    ::close(pipe_ends[1]);
    Step last;
    while (::read(pipe_ends[0], &last.value, sizeof(last.value)) > 0) continue;
    ::close(pipe_ends[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << victim;
    const absl::Status check = CheckFolder(scratch.path(), last);
    ASSERT_TRUE(check.ok()) << "killed before operation " << victim << ": " << check;
    // The next epoch sweeps the rest and goes on.
    CheckpointWriter next(scratch.path(), Epoch(2));
    ASSERT_TRUE(next.Sweep().ok());
    ASSERT_TRUE(WriteSample(next, Step(500), Epoch(2)).ok());
    ASSERT_TRUE(CheckFolder(scratch.path(), Step(500)).ok());
  }
}

// Fails one operation of a run of commits, the one that `fails` picks out with its running number.
struct FailedRun {
  absl::Status failure;  // of the step that the failure hit
  absl::Status after;    // of a step after it
  Step last;             // committed before
};
FailedRun RunWithFailure(const std::string& folder, size_t victim, const absl::Status& failure) {
  size_t count = 0;
  AskingDisk disk([&](auto...) { return count++ == victim ? failure : absl::OkStatus(); });
  CheckpointWriter writer(folder, Epoch(0), disk);
  FailedRun run;
  for (int64_t step = 100; run.failure.ok(); step += 100) {
    run.failure = WriteSample(writer, Step(step), Epoch(0));
    if (run.failure.ok()) run.last = Step(step);
    if (!run.failure.ok()) run.after = WriteSample(writer, Step(step + 1), Epoch(0));
  }
  return run;
}

TEST(Crash, FailedFsyncAtAnyPointPoisonsTheWriter) {
  const std::vector<Operation> operations = OperationsOfAJob();
  const absl::Status failure = absl::UnknownError("fsync: Input/output error");
  int failures = 0;
  // The first three steps of the job are the same commits that RunWithFailure makes.
  for (size_t victim = 0; victim < operations.size() * 3 / 5; ++victim) {
    if (operations[victim] != Operation::kSyncFile && operations[victim] != Operation::kSyncFolder)
      continue;
    Scratch scratch;
    const FailedRun run = RunWithFailure(scratch.path(), victim, failure);
    ASSERT_TRUE(absl::StrContains(run.failure.message(), "Input/output error")) << run.failure;
    ASSERT_TRUE(absl::StrContains(run.after.message(), "Input/output error")) << run.after;
    ASSERT_TRUE(CheckFolder(scratch.path(), run.last).ok());
    ++failures;
  }
  EXPECT_GE(failures, 20);
}

TEST(Crash, FullDiskAtAnyPointLosesThatStepOnlyAndLeavesNoPartialFolder) {
  const std::vector<Operation> operations = OperationsOfAJob();
  const absl::Status failure = absl::ResourceExhaustedError("write: No space left on device");
  int failures = 0;
  for (size_t victim = 0; victim < operations.size() * 3 / 5; ++victim) {
    if (operations[victim] != Operation::kMakeFolder && operations[victim] != Operation::kCreate &&
        operations[victim] != Operation::kWrite)
      continue;
    Scratch scratch;
    const FailedRun run = RunWithFailure(scratch.path(), victim, failure);
    ASSERT_TRUE(absl::IsResourceExhausted(run.failure)) << run.failure;
    ASSERT_TRUE(absl::StrContains(run.failure.message(), "free space there"));
    ASSERT_TRUE(run.after.ok()) << run.after;
    CheckpointWriter writer(scratch.path(), Epoch(0));
    ASSERT_TRUE(writer.Discard(Step(run.last.value + 100)).ok());
    for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
      ASSERT_FALSE(IsHiddenFolderName(entry.path().filename().string())) << entry.path();
    }
    ASSERT_TRUE(CheckFolder(scratch.path(), Step(run.last.value + 101)).ok());
    ++failures;
  }
  EXPECT_GE(failures, 100);
}

// What a disk may hold after a power cut: each file and each folder has a current and a synced
// form. Nothing that was not synced is promised, in any combination.
class PowerCutModel {
 public:
  explicit PowerCutModel(std::string root) : root_(std::move(root)) {}

  void Apply(Operation operation, const std::string& a, const std::string& b) {
    switch (operation) {
      case Operation::kMakeFolder:
        if (!names_.count(a)) names_[a] = std::make_shared<Node>();
        return;
      case Operation::kCreate:
        InFolder(a)[NameOf(a)] = std::make_shared<Node>();
        return;
      case Operation::kWrite:
        InFolder(a)[NameOf(a)]->content += b;
        return;
      case Operation::kSyncFile: {
        Node& file = *InFolder(a)[NameOf(a)];
        file.synced_content = file.content;
        return;
      }
      case Operation::kSyncFolder:
        if (a == root_) {
          synced_names_ = names_;
        } else {
          names_[a]->synced_files = names_[a]->files;
        }
        return;
      case Operation::kRename:
        names_[b] = names_[a];
        names_.erase(a);
        return;
      case Operation::kExchange:
        std::swap(names_[a], names_[b]);
        return;
      case Operation::kRemoveFile:
        if (names_.count(FolderOf(a))) InFolder(a).erase(NameOf(a));
        return;
      case Operation::kRemoveFolder:
        names_.erase(a);
        return;
    }
  }

  // Writes one of the possible states into `target`; `reached_disk`, asked anew for every file and
  // folder, decides between current and synced.
  void Cut(const std::string& target, const std::function<bool()>& reached_disk) const {
    const auto& names = reached_disk() ? names_ : synced_names_;
    for (const auto& [path, node] : names) {
      const std::string folder = JoinPath(target, NameOf(path));
      std::filesystem::create_directory(folder);
      for (const auto& [name, file] : reached_disk() ? node->files : node->synced_files) {
        std::ofstream(JoinPath(folder, name), std::ios::binary)
            << (reached_disk() ? file->content : file->synced_content);
      }
    }
  }

 private:
  struct Node {
    std::string content, synced_content;
    std::map<std::string, std::shared_ptr<Node>> files, synced_files;
  };
  static std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }
  std::map<std::string, std::shared_ptr<Node>>& InFolder(const std::string& path) {
    return names_.at(FolderOf(path))->files;
  }

  std::string root_;
  std::map<std::string, std::shared_ptr<Node>> names_, synced_names_;
};

TEST(Crash, PowerCutAtEveryOperationLeavesTheLastCommittedStep) {
  Scratch scratch;
  PowerCutModel model(scratch.path());
  std::mt19937 random(7);
  Step last;
  int operation_number = 0;
  const auto cut = [&] {
    for (int variant = 0; variant < 5; ++variant) {
      Scratch after;
      // First everything, then only what was synced, then any mixture of both.
      model.Cut(after.path(), [&] { return variant == 0 || (variant > 1 && random() % 2 == 0); });
      const absl::Status check = CheckFolder(after.path(), last);
      ASSERT_TRUE(check.ok()) << "cut before operation " << operation_number << ", variant "
                              << variant << ": " << check;
    }
  };
  AskingDisk disk([&](Operation operation, const std::string& a, const std::string& b) {
    cut();
    ++operation_number;
    model.Apply(operation, a, b);
    return absl::OkStatus();
  });
  ASSERT_TRUE(RunJob(scratch.path(), disk, [&](Step step) { last = step; }).ok());
  cut();
  EXPECT_GE(operation_number, 200);
}

TEST(Crash, PowerCutModelFindsAForgottenSync) {
  Scratch scratch;
  PowerCutModel model(scratch.path());
  AskingDisk disk([&](Operation operation, const std::string& a, const std::string& b) {
    if (operation != Operation::kSyncFile) model.Apply(operation, a, b);
    return absl::OkStatus();
  });
  Step last;
  ASSERT_TRUE(RunJob(scratch.path(), disk, [&](Step step) { last = step; }).ok());
  Scratch after;
  model.Cut(after.path(), [] { return false; });
  EXPECT_FALSE(CheckFolder(after.path(), last).ok());
}

}  // namespace
}  // namespace trainctl

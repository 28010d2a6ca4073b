#include "tests/process/worker/fake_supervisor.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace trainctl {

FakeSupervisor::FakeSupervisor(int world_size) : world_size_(world_size) {
  char folder[] = "/tmp/trainctl-test-XXXXXX";
  CHECK(::mkdtemp(folder) != nullptr);
  folder_ = folder;
  socket_path_ = folder_ + "/supervisor";
  absl::StatusOr<Fd> listener = ListenUnix(socket_path_, 0700);
  CHECK(listener.ok());
  listener_ = *std::move(listener);
  stop_ = Fd(::eventfd(0, EFD_CLOEXEC));
  for (int rank = 0; rank < world_size; ++rank) {
    int fd = -1;
    absl::StatusOr<MappedPage> page = MappedPage::Create(&fd);
    CHECK(page.ok());
    page->Reset(0);
    pages_.push_back(*std::move(page));
    page_fds_.emplace_back(fd);
  }
  thread_ = std::thread([this] { Serve(); });
}

void FakeSupervisor::Close() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  CHECK(::write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
  listener_.Close();
  std::filesystem::remove_all(folder_);
}

std::unique_ptr<Session> FakeSupervisor::MakeSession(int rank) {
  static Mutex environment;
  MutexLock lock(&environment);
  const auto set = [](const char* name, const std::string& value) {
    CHECK(::setenv(name, value.c_str(), 1) == 0);
  };
  set("RANK", absl::StrCat(rank));
  set("WORLD_SIZE", absl::StrCat(world_size_));
  set("LOCAL_RANK", absl::StrCat(rank));
  set("LOCAL_WORLD_SIZE", absl::StrCat(world_size_));
  set("TRAINCTL_EPOCH", "0");
  set("TRAINCTL_JOB_ID", "test");
  set("TRAINCTL_SOCKET", socket_path_);
  set("TRAINCTL_PAGE", absl::StrCat("/proc/self/fd/", page_fds_[static_cast<size_t>(rank)].get()));
  absl::StatusOr<std::unique_ptr<Session>> session = Session::FromEnvironment();
  CHECK(session.ok());
  return *std::move(session);
}

std::vector<frame::Frame> FakeSupervisor::received() {
  MutexLock lock(&mutex_);
  return received_;
}

void FakeSupervisor::Serve() {
  for (;;) {
    std::vector<pollfd> watched = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const auto& connection : connections_) {
      watched.push_back({connection->fd.get(), POLLIN, 0});
    }
    if (::poll(watched.data(), watched.size(), -1) < 0) continue;
    if (watched[0].revents != 0) break;
    std::vector<Connection*> ended;
    for (size_t i = 0; i + 2 < watched.size(); ++i) {
      if (watched[i + 2].revents != 0 && !Read(*connections_[i])) {
        ended.push_back(connections_[i].get());
      }
    }
    std::erase_if(connections_, [&](const auto& connection) {
      return std::find(ended.begin(), ended.end(), connection.get()) != ended.end();
    });
    if (watched[1].revents != 0) {
      auto connection = std::make_unique<Connection>();
      connection->fd = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection->fd.valid()) connections_.push_back(std::move(connection));
    }
  }
  connections_.clear();
}

bool FakeSupervisor::Read(Connection& connection) {
  char buffer[65536];
  const ssize_t n = ::recv(connection.fd.get(), buffer, sizeof(buffer), 0);
  if (n <= 0) return false;
  connection.decoder.Feed(absl::string_view(buffer, static_cast<size_t>(n)));
  for (;;) {
    absl::StatusOr<std::optional<frame::Frame>> next = connection.decoder.Next();
    CHECK(next.ok());
    if (!next->has_value()) return true;
    Answer(connection, **std::move(next));
  }
}

void FakeSupervisor::Answer(Connection& connection, frame::Frame message) {
  if (auto* hello = std::get_if<frame::Hello>(&message)) {
    connection.rank = hello->rank;
    return;
  }
  if (auto* exchange = std::get_if<frame::Exchange>(&message)) {
    std::map<int, std::string>& values = exchanges_[exchange->name];
    values[exchange->rank] = exchange->value;
    if (values.size() < static_cast<size_t>(world_size_)) return;
    frame::ExchangeDone done;
    done.epoch = exchange->epoch;
    done.name = exchange->name;
    for (auto& [rank, value] : values) done.values.push_back(value);
    const std::string bytes = frame::Encode(done);
    for (const auto& other : connections_) {
      WriteAll(other->fd.get(), bytes, "worker").IgnoreError();
    }
    exchanges_.erase(done.name);
    return;
  }
  if (auto* prepared = std::get_if<frame::ShardPrepared>(&message)) {
    std::map<int, frame::Shard>& shards = shards_[prepared->step];
    shards[prepared->shard.rank] = prepared->shard;
    if (shards.size() == static_cast<size_t>(world_size_)) {
      frame::CommitGranted granted;
      granted.term = 1;
      granted.step = prepared->step;
      for (auto& [rank, shard] : shards) granted.shards.push_back(shard);
      for (const auto& other : connections_) {
        if (other->rank == 0) {
          WriteAll(other->fd.get(), frame::Encode(granted), "worker").IgnoreError();
        }
      }
    }
  }
  MutexLock lock(&mutex_);
  received_.push_back(std::move(message));
}

void RunRanks(int world_size, const std::function<void(Session&, Communicator&)>& body,
              const CommunicatorOptions& options) {
  FakeSupervisor supervisor(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Session> session = supervisor.MakeSession(rank);
      absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectGloo(*session, options);
      CHECK(communicator.ok());
      body(*session, **communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace trainctl

#include "launcher/inviter.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/node.grpc.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/network.h"
#include "runtime/base/status.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/rpc_status.h"
#include "runtime/security/tls_files.h"

namespace trainctl {
namespace {

constexpr auto kAnswerTime = std::chrono::seconds(10);
constexpr Duration kFirstPause = milliseconds(200);
constexpr Duration kLongestPause = seconds(5);
// A node that said yes comes by itself, if its machine is busy a little later.
constexpr Duration kOnItsWay = seconds(5);

}  // namespace

// Outlives the inviter if it must: gRPC answers every call that was made.
struct Inviter::Call {
  ServiceAddress address;
  std::unique_ptr<v1::PeerService::Stub> stub;
  grpc::ClientContext context;
  v1::InviteRequest request;
  v1::InviteReply reply;
  Inviter* owner = nullptr;  // on the loop's thread; null once the inviter is gone
};

absl::StatusOr<std::unique_ptr<Inviter>> Inviter::Begin(
    Loop* loop, const JobSpec& spec, int port, std::function<std::vector<std::string>()> away) {
  std::unique_ptr<Inviter> inviter(new Inviter(loop, spec, port, std::move(away)));
  ASSIGN_OR_RETURN(inviter->identity_, LoadIdentity({spec.key_file, spec.tls_certificate,
                                                     spec.tls_private_key, spec.tls_authority},
                                                    PeerName::Node(spec.head), kNodeValidity));
  // After the job has begun.
  inviter->timer_ = loop->After(Duration(0), [self = inviter.get()] { self->AskAll(); });
  return inviter;
}

Inviter::Inviter(Loop* loop, const JobSpec& spec, int port,
                 std::function<std::vector<std::string>()> away)
    : loop_(loop), spec_(spec), port_(port), away_(std::move(away)), pause_(kFirstPause) {}

Inviter::~Inviter() {
  loop_->Cancel(timer_);
  for (auto& [node, call] : calls_) {
    call->owner = nullptr;
    call->context.TryCancel();
  }
}

void Inviter::AskAll() {
  for (const std::string& node : away_()) {
    const auto accepted = accepted_.find(node);
    const bool comes = accepted != accepted_.end() && Now() < accepted->second + kOnItsWay;
    if (node != spec_.head && calls_.count(node) == 0 && !comes) Ask(node);
  }
  timer_ = loop_->After(pause_, [this] { AskAll(); });
  pause_ = std::min<Duration>(pause_ * 2, kLongestPause);
}

int Inviter::SlotsOf(const std::string& node) const {
  const auto place = std::find(spec_.nodes.begin(), spec_.nodes.end(), node) - spec_.nodes.begin();
  const auto index = static_cast<size_t>(place);
  return index < spec_.node_slots.size() ? spec_.node_slots[index]
                                         : std::max(spec_.workers_per_node, 1);
}

void Inviter::Ask(const std::string& node) {
  auto call = std::make_shared<Call>();
  call->owner = this;
  call->address.endpoint = {node, spec_.daemon_port};
  call->address.identity = identity_;
  // Whoever listens at a literal address is meant, whatever it calls itself.
  if (!IsLiteralAddress(node)) call->address.node = node;
  v1::NodePart* part = call->request.mutable_part();
  part->set_job_id(spec_.job_id);
  part->set_node(node);
  part->set_slots(SlotsOf(node));
  if (spec_.gpu_wish.wanted) {
    part->mutable_gpu_wish()->set_gpus(spec_.gpu_wish.gpus);
    part->mutable_gpu_wish()->set_binding(spec_.gpu_wish.binding);
    part->mutable_gpu_wish()->set_share(spec_.gpu_wish.share);
  }
  part->set_lease_ns(spec_.lease.count());
  part->set_coordinator(absl::StrCat(":", port_));
  part->set_head(spec_.head);
  absl::StatusOr<DialledChannel> dialled = Dial(call->address);
  if (!dialled.ok()) return Answered(node, dialled.status());
  call->stub = v1::PeerService::NewStub(dialled->channel);
  call->context.set_deadline(std::chrono::system_clock::now() + kAnswerTime);
  calls_[node] = call;
  call->stub->async()->Invite(
      &call->context, &call->request, &call->reply,
      [loop = loop_, node, call](const grpc::Status& status) {
        loop->Post([node, call, status = ExplainCall(call->address, FromGrpc(status))] {
          if (call->owner == nullptr) return;
          call->owner->calls_.erase(node);
          call->owner->Answered(node, status);
        });
      });
}

void Inviter::Answered(const std::string& node, const absl::Status& status) {
  const std::string text(status.message());
  if (status.ok()) accepted_[node] = Now();
  if (status.ok() || std::exchange(told_[node], text) == text) return;
  LogWarning("invite node ", node, ": ", text);
}

}  // namespace trainctl

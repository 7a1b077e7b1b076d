// SPDX-License-Identifier: BSD-3-Clause
#include "transport/handler/node_handler.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/trace.hpp"
#include "transport/node/process_memory.hpp"

namespace farside {

// The message queues of on-node peers that this process has mapped, by their nonces.
struct OnNodePeers {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Mapping>> message_queues;
};

static_assert(MessageQueue::kMostBytes >= kMaxMessage && MessageQueue::kMostBytes >= sizeof(ReplyHeader) + kMaxPayload);

Result<std::unique_ptr<NodeHandler>> NodeHandler::open(Statistics& statistics) {
  Result<Segment> segment = make_segment(sizeof(MessageQueue));
  if (!segment) return segment.error();
  std::unique_ptr<NodeHandler> handler(new NodeHandler(std::move(segment.value()), statistics));
  if (Status started = start_own_thread(handler->thread_, "farside-node", [to = handler.get()] { to->run(); });
      !started)
    return started.error();
  return handler;
}

NodeHandler::NodeHandler(Segment segment, Statistics& statistics)
    : segment_(std::move(segment)), message_queue_(MessageQueue::at(segment_.mapping.base())), statistics_(statistics) {
  message_queue_.open(random_bits());
}

NodeHandler::~NodeHandler() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_seq_cst);
  message_queue_.wake_event().wake();
  thread_.join();
}

std::optional<std::size_t> NodeHandler::answer(std::span<const std::byte> message, std::span<std::byte> room) {
  const TraceServed served(RouteKind::kCma, message.size());
  MessageHandler::Answer answer = handler_.execute(message, std::move(fetched_), timeout_);
  if (answer.deferred) {
    fetched_ = std::move(answer.fetched);
    timeout_ = {};
    deferred_ = true;
    return std::nullopt;
  }
  statistics_.add(RouteKind::kCma, Counted::kHandler, message.size());
  std::memcpy(room.data(), &answer.header, sizeof answer.header);
  std::ranges::copy(answer.fetched, room.begin() + sizeof answer.header);
  fetched_ = std::move(answer.fetched);
  return sizeof answer.header + fetched_.size();
}

bool NodeHandler::poll() {
  const std::optional<std::uint32_t> sent = message_queue_.any_since(seen_.load(std::memory_order_relaxed));
  if (!sent) [[likely]]
    return false;
  // A message in a slot that the holder of mutex_ has already passed is not lost: the next poll reads the queue, or
  // the sender wakes the thread. The thread reads the queue again before it sleeps.
  const std::unique_lock held(mutex_, std::try_to_lock);
  if (!held) return false;
  seen_.store(*sent, std::memory_order_relaxed);
  if (!answer_all(true)) return false;
  statistics_.add(RouteKind::kCma, Counted::kFromRuntime, 0);
  return true;
}

// Called with mutex_ held.
bool NodeHandler::answer_all(bool polls) {
  deferred_ = false;
  const bool any = message_queue_.answer_all(
      [this](std::span<const std::byte> message, std::span<std::byte> room) { return answer(message, room); }, polls);
  if (!deferred_) timeout_ = Timing::kHandlerLock;
  return any;
}

// The thread probes before it sleeps: often another message follows soon. It does not yield. Where the process is bound
// to one core and its application spins in MPI, a thread that yields gets the core back after a time slice (messages
// took 8 ms). A thread that sleeps gets it back when it is woken.
void NodeHandler::run() {
  for (int probes = 0; !stop_.load(std::memory_order_seq_cst);) {
    if (look()) {
      probes = 0;
    } else if (++probes <= Timing::kSpins) {
      relax();
    } else {
      const std::uint32_t seen = message_queue_.wake_event().arm();
      if (!look() && !stop_.load(std::memory_order_seq_cst)) {
        message_queue_.wake_event().sleep(seen,
                                          deferred_ ? Timing::Nanoseconds(Timing::kTryAgain) : std::chrono::hours(1));
      }
      message_queue_.wake_event().disarm();
      probes = 0;
    }
  }
}

Result<std::unique_ptr<PeerNodeHandler>> PeerNodeHandler::find(const NodeMember& peer, std::uint64_t space, int rank) {
  std::uint64_t nonce = 0;
  if (Status read = read_process_memory(peer.pid, peer.nonce_address, &nonce, sizeof nonce); !read) return read.error();
  if (nonce != peer.nonce)
    return Error{ErrorKind::kNoRoute, fmt::format("process id {} is that of another process here", peer.pid)};
  auto& [mutex, queues] = *this_process.on_node_peers;
  const std::scoped_lock held(mutex);
  std::weak_ptr<Mapping>& known = queues[peer.handler.nonce];
  std::shared_ptr<Mapping> mapping = known.lock();
  if (mapping == nullptr) {
    Result<Mapping> mapped = map_peer_segment(peer.handler, sizeof(MessageQueue));
    if (!mapped) return mapped.error();
    mapping = std::make_shared<Mapping>(std::move(mapped.value()));
    known = mapping;
  }
  std::erase_if(queues, [](const auto& entry) { return entry.second.expired(); });
  return std::unique_ptr<PeerNodeHandler>(new PeerNodeHandler(std::move(mapping), peer, space, rank));
}

bool PeerNodeHandler::is_alive() const {
  std::uint64_t nonce = 0;
  const Status read = read_process_memory(pid_, nonce_address_, &nonce, sizeof nonce);
  // The kernel refuses access only to a process that has memory, so it has not ended.
  return read ? nonce == nonce_ : read.error().kind == ErrorKind::kNoRoute;
}

template <class Unanswered>
Status PeerNodeHandler::finish(Progress& progress, MessageQueue::Message message, const MessageQueue::Owner& owner,
                               const HandlerRequest& request, const OperationList* list, Unanswered&& unanswered) {
  const Result<std::optional<MessageQueue::Answer>> waited = queue().wait_for_answer(progress, message, owner);
  if (!waited) return waited.error();
  const std::optional<MessageQueue::Answer>& answer = waited.value();
  if (unanswered_ != !answer) unanswered_ = !answer;
  if (!answer) return unanswered();
  if (answer->by_poller) poller_answered_at_.store(ticks(), std::memory_order_relaxed);
  ReplyHeader reply{};
  if (answer->bytes.size() < sizeof reply) return refusal(ReplyStatus::kRefused);
  std::memcpy(&reply, answer->bytes.data(), sizeof reply);
  return request.deliver(reply.status, answer->bytes.subspan(sizeof reply), list);
}

Status PeerNodeHandler::execute(Progress& progress, std::span<const std::unique_ptr<OperationList>> lists,
                                const Instead& instead) {
  const IsAlive is_alive = [this] { return this->is_alive(); };
  const HandlerRequest request = HandlerRequest::operations().to(space_, rank_);
  Status first;
  while (!lists.empty()) {
    // Fills all free slots, so that one wake serves all these lists.
    const auto one =
        queue().enqueue(progress, sender_, parts(request, lists.front()->bytes()), {is_alive, false, timeout()});
    if (!one) return first ? Status(one.error()) : std::move(first);
    if (!one.value()) {
      unanswered_ = true;
      first.keep(instead(*lists.front()));
      lists = lists.subspan(1);
      continue;
    }
    std::array<MessageQueue::Message, MessageQueue::kSlots> messages{*one.value()};
    std::size_t sent = 1;
    for (; sent < std::min(lists.size(), messages.size()); ++sent) {
      const auto next = queue().enqueue(sender_, parts(request, lists[sent]->bytes()));
      if (!next) break;
      messages[sent] = *next;
    }
    for (std::size_t i = 0; i < sent; ++i) {
      const OperationList& list = *lists[i];
      first.keep(finish(progress, messages[i], {is_alive, has_just_polled(), timeout()}, request, &list,
                        [&] { return instead(list); }));
    }
    lists = lists.subspan(sent);
  }
  return first;
}

Status PeerNodeHandler::ask_for_regions(Progress& progress, std::uint64_t address, std::span<std::byte> regions) {
  const IsAlive is_alive = [this] { return this->is_alive(); };
  const HandlerRequest request = HandlerRequest::question(MessageKind::kRegions, regions, address).to(space_, rank_);
  const auto message = queue().enqueue(progress, sender_, parts(request, {}), {is_alive});
  if (!message) return message.error();
  return finish(progress, *message.value(), {is_alive}, request, nullptr, [] { return Status(); });
}

}  // namespace farside

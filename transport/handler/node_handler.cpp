// SPDX-License-Identifier: BSD-3-Clause
#include "transport/handler/node_handler.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/pause.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/trace.hpp"
#include "transport/node/process_memory.hpp"

namespace farside {

// The message queues of on-node peers that this process has mapped, by their nonces.
struct OnNodePeers {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Mapping>> message_queues;
};

namespace {

static_assert(MessageQueue::kMostBytes >= kMaxMessage && MessageQueue::kMostBytes >= sizeof(ReplyHeader) + kMaxPayload);

// Probes before the thread sleeps: often another message follows soon. The thread does not yield. Where the process is
// bound to one core and its application spins in MPI, a thread that yields gets the core back after a time slice
// (messages took 8 ms). A thread that sleeps gets it back when it is woken.

}  // namespace

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

bool NodeHandler::publish(std::uint64_t id, const MessageHandler::ServedSpace& space) {
  const std::scoped_lock held(mutex_);
  return handler_.publish(id, space);
}

void NodeHandler::withdraw(std::uint64_t space) {
  const std::scoped_lock held(mutex_);
  handler_.withdraw(space);
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
  answer.log_refusal();
  statistics_.add(RouteKind::kCma, Counted::kHandler, message.size());
  // An on-node peer knows which message is answered.
  const ReplyStatus status = answer.known_sender ? answer.header.status : ReplyStatus::kRefused;
  const ReplyHeader header{MessageKind::kReply, status, 0, 0, 0};
  std::memcpy(room.data(), &header, sizeof header);
  std::copy(answer.fetched.begin(), answer.fetched.end(), room.begin() + sizeof header);
  fetched_ = std::move(answer.fetched);
  return sizeof header + fetched_.size();
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

// A thread that holds mutex_ may have passed the slot already, so this one reads all of them itself.
void NodeHandler::finish_posted_now() {
  const std::scoped_lock held(mutex_);
  answer_all(false);
}

void NodeHandler::run() {
  // Waits for a poller that holds mutex_: a message in a slot that the poller has already passed may cause no
  // second wake.
  bool deferred = false;
  const auto look = [this, &deferred] {
    const std::scoped_lock held(mutex_);
    const bool any = answer_all(false);
    deferred = deferred_;
    return any;
  };
  for (int probes = 0; !stop_.load(std::memory_order_seq_cst);) {
    if (look()) {
      probes = 0;
    } else if (++probes <= Timing::kSpins) {
      relax();
    } else {
      const std::uint32_t seen = message_queue_.wake_event().arm();
      if (!look() && !stop_.load(std::memory_order_seq_cst)) {
        message_queue_.wake_event().sleep(seen,
                                          deferred ? Timing::Nanoseconds(Timing::kTryAgain) : std::chrono::hours(1));
      }
      message_queue_.wake_event().disarm();
      probes = 0;
    }
  }
}

Result<std::unique_ptr<PeerNodeHandler>> PeerNodeHandler::find(std::int32_t pid, std::uint64_t nonce_address,
                                                               std::uint64_t nonce, const NodeHandlerPlace& place,
                                                               std::uint64_t space) {
  const std::scoped_lock held(this_process.on_node_peers->mutex);
  std::weak_ptr<Mapping>& known = this_process.on_node_peers->message_queues[place.nonce];
  std::shared_ptr<Mapping> mapping = known.lock();
  if (mapping == nullptr) {
    Result<Mapping> mapped = map_peer_segment(pid, place.fd, sizeof(MessageQueue));
    if (!mapped) return mapped.error();
    if (MessageQueue::at(mapped.value().base()).nonce() != place.nonce) {
      return Error{ErrorKind::kNoRoute, fmt::format("process id {} is that of another process here", pid)};
    }
    mapping = std::make_shared<Mapping>(std::move(mapped.value()));
    known = mapping;
  }
  std::erase_if(this_process.on_node_peers->message_queues, [](const auto& entry) { return entry.second.expired(); });
  return std::unique_ptr<PeerNodeHandler>(new PeerNodeHandler(std::move(mapping), pid, nonce_address, nonce, space));
}

bool PeerNodeHandler::is_alive() const {
  std::uint64_t nonce = 0;
  const Status read = read_process_memory(pid_, nonce_address_, &nonce, sizeof nonce);
  // The kernel refuses access only to a process that has memory, so it has not ended.
  return read ? nonce == nonce_ : read.error().kind == ErrorKind::kNoRoute;
}

RequestHeader PeerNodeHandler::header(std::uint32_t sender) const {
  RequestHeader header{};
  header.kind = MessageKind::kOperations;
  header.sender = sender;
  header.space = space_;
  return header;
}

bool PeerNodeHandler::post(std::uint32_t sender, const OperationList& list) {
  const RequestHeader header = this->header(sender);
  const std::array<std::span<const std::byte>, 2> parts{std::as_bytes(std::span(&header, 1)), list.bytes()};
  return MessageQueue::at(mapping_->base()).post(sender_, parts);
}

Status PeerNodeHandler::execute(Progress& progress, std::uint32_t sender,
                                std::span<const std::unique_ptr<OperationList>> lists) {
  MessageQueue& message_queue = MessageQueue::at(mapping_->base());
  const std::function<bool()> is_alive = [this] { return this->is_alive(); };
  const RequestHeader header = this->header(sender);
  const auto parts = [&](const OperationList& list) {
    return std::array<std::span<const std::byte>, 2>{std::as_bytes(std::span(&header, 1)), list.bytes()};
  };
  Status first;
  while (!lists.empty()) {
    // Fills all free slots, so that one wake serves all these lists.
    const auto one = message_queue.enqueue(progress, sender_, parts(*lists.front()), {is_alive});
    if (!one) return first ? Status(one.error()) : std::move(first);
    std::array<MessageQueue::Message, MessageQueue::kSlots> messages;
    messages.front() = one.value();
    std::size_t left = 1;
    for (; left < std::min(lists.size(), messages.size()); ++left) {
      const std::optional<MessageQueue::Message> next = message_queue.enqueue(sender_, parts(*lists[left]));
      if (!next) break;
      messages[left] = *next;
    }
    for (std::size_t message = 0; message < left; ++message) {
      Status finished = finish(progress, messages[message], *lists[message], is_alive);
      if (first) first = std::move(finished);
    }
    lists = lists.subspan(left);
  }
  return first;
}

Status PeerNodeHandler::finish(Progress& progress, MessageQueue::Message message, const OperationList& list,
                               const std::function<bool()>& is_alive) {
  const Result<MessageQueue::Answer> answer =
      MessageQueue::at(mapping_->base()).wait_for_answer(progress, message, {is_alive, has_just_polled()});
  if (!answer) return answer.error();
  if (answer.value().by_poller()) poller_answered_at_.store(ticks(), std::memory_order_relaxed);
  const std::span<const std::byte> bytes = answer.value().bytes();
  ReplyHeader reply{};
  if (bytes.size() >= sizeof reply) std::memcpy(&reply, bytes.data(), sizeof reply);
  if (bytes.size() < sizeof reply) reply.status = ReplyStatus::kRefused;
  if (reply.status != ReplyStatus::kDone) return refusal(reply.status);
  const std::span<const std::byte> fetched = bytes.subspan(sizeof reply);
  if (fetched.size() != list.fetched_bytes())
    return Error{ErrorKind::kPeer, "the target's handler answered with a wrong length"};
  list.deliver(fetched);
  return {};
}

}  // namespace farside

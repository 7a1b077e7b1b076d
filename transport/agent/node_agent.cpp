// SPDX-License-Identifier: BSD-3-Clause
#include "transport/agent/node_agent.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/base/own_thread.hpp"
#include "transport/base/random.hpp"
#include "transport/base/relax.hpp"
#include "transport/base/trace.hpp"
#include "transport/node/process_memory.hpp"

namespace farside {
namespace {

static_assert(Mailbox::kMostBytes >= kMaxMessage && Mailbox::kMostBytes >= sizeof(ReplyHeader) + kMaxPayload);

// After a letter the next one is often near. No yields: where the process is bound to one core and its application spins in MPI
// there, a thread that yields gets the core back after a time slice (letters took 8 ms), and one that sleeps when it is woken.
constexpr int kSpins = 64;

// Neighbours' mailboxes that are mapped at present, by their nonces.
struct Neighbours {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Mapping>> mailboxes;
};
Neighbours& neighbours() {
  static auto* const all = new Neighbours();  // never destroyed, as Process
  return *all;
}

}  // namespace

Result<std::unique_ptr<NodeAgent>> NodeAgent::open(Statistics& statistics) {
  Result<Segment> segment = make_segment(sizeof(Mailbox));
  if (!segment) return segment.error();
  std::unique_ptr<NodeAgent> agent(new NodeAgent(std::move(segment.value()), statistics));
  if (Status started = start_own_thread(agent->thread_, "farside-node", [to = agent.get()] { to->run(); }); !started) return started.error();
  return agent;
}

NodeAgent::NodeAgent(Segment segment, Statistics& statistics)
    : segment_(std::move(segment)), mailbox_(Mailbox::at(segment_.mapping.base())), statistics_(statistics) {
  mailbox_.open(random_bits());
}

NodeAgent::~NodeAgent() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_seq_cst);
  mailbox_.bell().ring();
  thread_.join();
}

NodeAgentDescriptor NodeAgent::publish(Agent::Region region, int ranks) {
  const std::scoped_lock held(mutex_);
  const std::uint64_t id = agent_.publish(std::move(region));
  agent_.admit(id, std::vector<std::uint64_t>(static_cast<std::size_t>(ranks)), true);
  return {segment_.fd.get(), mailbox_.nonce(), id};
}

void NodeAgent::withdraw(std::uint64_t region) {
  const std::scoped_lock held(mutex_);
  agent_.withdraw(region);
}

std::size_t NodeAgent::answer(std::span<const std::byte> letter, std::span<std::byte> room) {
  const TraceServed served(RouteKind::kCma, letter.size());
  const Agent::Answer answer = [&] {
    const std::scoped_lock held(mutex_);
    return agent_.execute(letter);
  }();
  if (answer.refused != nullptr) log(LogLevel::kWarn, "a request to the agent was refused: {}", answer.refused);
  statistics_.add(RouteKind::kCma, Counted::kAgent, letter.size());
  ReplyHeader header = answer.header;
  if (!answer.known_sender) header = {MessageKind::kReply, ReplyStatus::kRefused, 0, 0, 0};
  std::memcpy(room.data(), &header, sizeof header);
  std::copy(answer.fetched.begin(), answer.fetched.end(), room.begin() + sizeof header);
  return sizeof header + answer.fetched.size();
}

bool NodeAgent::poll() {
  if (!mailbox_.any_since(seen_)) [[likely]] return false;
  // What the thread has passed by it sees before it sleeps, and what another poller has, at its next look, or the sender rings.
  const std::unique_lock held(answering_, std::try_to_lock);
  if (!held || !answer_all()) return false;
  statistics_.add(RouteKind::kCma, Counted::kFromRuntime, 0);
  return true;
}

// Called with answering_ held.
bool NodeAgent::answer_all() {
  return mailbox_.answer_all([this](std::span<const std::byte> letter, std::span<std::byte> room) { return answer(letter, room); });
}

void NodeAgent::run() {
  // Waits for who polls: nobody may ring again for a letter that this one has passed by.
  const auto look = [this] {
    const std::scoped_lock held(answering_);
    return answer_all();
  };
  for (int looks = 0; !stop_.load(std::memory_order_seq_cst);) {
    if (look()) {
      looks = 0;
    } else if (++looks <= kSpins) {
      relax();
    } else {
      const std::uint32_t seen = mailbox_.bell().arm();
      if (!look() && !stop_.load(std::memory_order_seq_cst)) {
        mailbox_.bell().sleep(seen, std::chrono::hours(1));
      }
      mailbox_.bell().disarm();
      looks = 0;
    }
  }
}

Result<std::unique_ptr<NeighbourAgent>> NeighbourAgent::find(std::int32_t pid, std::uint64_t nonce_address, std::uint64_t nonce,
                                                             const NodeAgentDescriptor& descriptor) {
  const std::scoped_lock held(neighbours().mutex);
  std::weak_ptr<Mapping>& known = neighbours().mailboxes[descriptor.nonce];
  std::shared_ptr<Mapping> mapping = known.lock();
  if (mapping == nullptr) {
    Result<Mapping> mapped = map_peer_segment(pid, descriptor.fd, sizeof(Mailbox));
    if (!mapped) return mapped.error();
    if (Mailbox::at(mapped.value().base()).nonce() != descriptor.nonce) {
      return Error{ErrorKind::kNoRoute, fmt::format("process {} here is another one", pid)};
    }
    mapping = std::make_shared<Mapping>(std::move(mapped.value()));
    known = mapping;
  }
  std::erase_if(neighbours().mailboxes, [](const auto& entry) { return entry.second.expired(); });
  return std::unique_ptr<NeighbourAgent>(new NeighbourAgent(std::move(mapping), pid, nonce_address, nonce, descriptor.region));
}

bool NeighbourAgent::lives() const {
  std::uint64_t nonce = 0;
  return read_process_memory(pid_, nonce_address_, &nonce, sizeof nonce).ok() && nonce == nonce_;
}

Status NeighbourAgent::carry_out(Progress& progress, std::uint32_t sender, std::span<const std::unique_ptr<OperationList>> lists) {
  Mailbox& mailbox = Mailbox::at(mapping_->base());
  const std::function<bool()> lives = [this] { return this->lives(); };
  RequestHeader header{};
  header.kind = MessageKind::kOperations;
  header.sender = sender;
  header.region = region_;
  const auto parts = [&](const OperationList& list) {
    return std::array<std::span<const std::byte>, 2>{std::as_bytes(std::span(&header, 1)), list.bytes()};
  };
  Status first;
  while (!lists.empty()) {
    // As many as there are slots for, and then one waking for all of them.
    const Result<Mailbox::Letter> one = mailbox.leave(progress, sender_, parts(*lists.front()), lives);
    if (!one) return first ? Status(one.error()) : std::move(first);
    std::array<std::optional<Mailbox::Letter>, Mailbox::kSlots> letters{one.value()};
    std::size_t left = 1;
    for (; left < std::min(lists.size(), letters.size()); ++left) {
      letters[left] = mailbox.leave(sender_, parts(*lists[left]));
      if (!letters[left]) break;
    }
    for (std::size_t letter = 0; letter < left; ++letter) {
      Status finished = finish(progress, *letters[letter], *lists[letter]);
      if (first) first = std::move(finished);
    }
    lists = lists.subspan(left);
  }
  return first;
}

Status NeighbourAgent::finish(Progress& progress, Mailbox::Letter letter, const OperationList& list) {
  const Result<Mailbox::Answer> answer = Mailbox::at(mapping_->base()).wait_for_answer(progress, letter, [this] { return lives(); });
  if (!answer) return answer.error();
  const std::span<const std::byte> bytes = answer.value().bytes();
  ReplyHeader reply{};
  if (bytes.size() >= sizeof reply) std::memcpy(&reply, bytes.data(), sizeof reply);
  if (bytes.size() < sizeof reply || reply.status != ReplyStatus::kDone) {
    return Error{ErrorKind::kRange, "the target's agent refused the request"};
  }
  const std::span<const std::byte> fetched = bytes.subspan(sizeof reply);
  if (fetched.size() != list.fetched_bytes()) return Error{ErrorKind::kPeer, "the target's agent answered with a wrong length"};
  list.deliver(fetched);
  return {};
}

}  // namespace farside

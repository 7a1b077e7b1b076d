// SPDX-License-Identifier: BSD-3-Clause
// FabricRoute: control words, the adapter's atomics, and the second rail.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/base/log.hpp"
#include "transport/base/waiter.hpp"
#include "transport/routes/fabric_route.hpp"

namespace farside {

Status FabricRoute::control_behind_kept(FabricTarget& to, Pending& pending, const ControlStep& step,
                                        std::uint64_t* fetched, bool awaited) {
  const auto send = [&](std::unique_ptr<OperationList> list) {
    // Fetched data need a reply.
    if (awaited || (list != nullptr && list->fetched_bytes() > 0))
      return endpoint_.execute_and_control(pending, handler_of(to), std::move(list), step, fetched);
    const bool carries = list != nullptr && !endpoint_.acknowledges_notifications();
    Status sent = endpoint_.notify(pending, handler_of(to), std::move(list), step, fetched);
    if (carries) {
      const auto held = targets_.hold(to);
      to.unconfirmed.sent();
    }
    return sent;
  };
  const FabricTargets::Use use(targets_, to);
  // In a dynamic space, detached memory may stop the operations, and only a reply reports that. A message without a
  // reply does not carry them; they stay kept.
  if (!use || (!awaited && agreed_.regions != nullptr)) return send(nullptr);
  KeptOperations taken = take_kept(*use, true);
  // A flush by another thread waits for them, too.
  if (!taken.empty()) {
    taken.make_list();
    pending.next_counts_in(&use->requests);
  }
  Status status = send(std::move(taken.list));
  if (!status) pending.next_counts_in(nullptr);
  kept_sent(*use, std::move(taken));
  return status;
}

Status FabricRoute::control(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                            const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched) {
  statistics_.add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  if (agreed_.rules.by_nic) {
    const Result<FabricTarget*> to = describe(rank);
    if (!to) return to.error();
    const FabricTarget& target = *to.value();
    return endpoint_.control(pending, {target.peer, targets_.description(target).control_key, word}, call, operand,
                             compare, fetched);
  }
  const Result<FabricTarget*> to = reach(rank);
  if (!to) return to.error();
  const ControlStep step{call, {}, word, *operand, *compare};
  if (access == DataAccess::kEnds) return control_behind_kept(*to.value(), pending, step, fetched, true);
  return endpoint_.execute_and_control(pending, handler_of(*to.value()), nullptr, step, fetched);
}

Status FabricRoute::notify(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                           const std::uint64_t* operand, std::uint64_t* fetched) {
  if (agreed_.rules.by_nic) return control(call, access, rank, word, pending, operand, operand, fetched);
  statistics_.add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  const Result<FabricTarget*> to = reach(rank);
  if (!to) return to.error();
  const ControlStep step{call, {}, word, *operand, 0};
  if (access == DataAccess::kEnds) return control_behind_kept(*to.value(), pending, step, fetched, false);
  return endpoint_.notify(pending, handler_of(*to.value()), nullptr, step, fetched);
}

void FabricRoute::post_received(int rank) {
  FabricTarget* const target = targets_.find(rank);
  if (target == nullptr) return;
  if (target->unconfirmed.any()) {
    const auto held = targets_.hold(*target);
    target->unconfirmed.executed(target->unconfirmed.last());
  }
  const std::uint32_t now = endpoint_.interruptions();
  if (now != first_interruptions_) [[unlikely]] {
    if (interruptions_at_post_ == nullptr) interruptions_at_post_ = std::make_unique<std::map<int, std::uint32_t>>();
    (*interruptions_at_post_)[rank] = now;
  }
}

bool FabricRoute::interrupted_since(int rank, std::uint32_t interruptions) {
  if (endpoint_.interruptions() == interruptions) [[likely]]
    return false;
  const Result<FabricTarget*> target = reach(rank);
  if (!target) return false;
  // The numbers may wrap.
  const std::uint32_t last = endpoint_.last_interruption(target.value()->peer);
  return last != 0 && static_cast<std::int32_t>(last - interruptions) > 0;
}

bool FabricRoute::interrupted_since_post(int rank) {
  if (endpoint_.interruptions() == first_interruptions_) [[likely]]
    return false;
  if (interruptions_at_post_ == nullptr) return interrupted_since(rank, first_interruptions_);
  const auto found = interruptions_at_post_->find(rank);
  return interrupted_since(rank, found != interruptions_at_post_->end() ? found->second : first_interruptions_);
}

// The reply to a message implies that the earlier messages were executed.
Status FabricRoute::confirm(BusyTarget& to) {
  constexpr std::uint32_t kAnyWord = 0;
  std::uint64_t fetched = 0;
  Pending pending;
  pending.towards(to.rank);
  const std::uint16_t latest = to.target->unconfirmed.last();
  Status asked = endpoint_.execute_and_control(pending, handler_of(*to.target), nullptr,
                                               {ControlCall::kRead, {}, kAnyWord, 1, 0}, &fetched);
  if (asked) asked = wait_for(pending);
  if (!asked) return asked;
  const auto held = targets_.hold(*to.target);
  to.target->unconfirmed.executed(latest);
  return {};
}

// Accumulates of 64-bit integers in the atomicity domain nic, by atomics of the target's adapter. Elements of a sum
// are one fetch-add each, issued without waiting. Operations for which adapters have no atomic use compare-and-swaps,
// and wait for them.
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
// The most atomics that are under way towards one target. Adapters work on about 16 at a time, and more of them make
// a stall of Soft-RoCE more likely (tests/running.md, "Soft-RoCE").
constexpr std::size_t kCallsTogether = 32;

std::uint64_t word_at(const void* address) {
  std::uint64_t word = 0;
  if (address != nullptr) std::memcpy(&word, address, sizeof word);
  return word;
}

const std::byte* element(const void* buffer, std::size_t index) {
  return buffer != nullptr ? static_cast<const std::byte*>(buffer) + index * kWord : nullptr;
}
std::byte* element(void* buffer, std::size_t index) {
  return buffer != nullptr ? static_cast<std::byte*>(buffer) + index * kWord : nullptr;
}

}  // namespace

Status FabricRoute::control_element(BusyTarget& to, Pending& among, ControlCall call, std::uint64_t offset,
                                    const std::uint64_t* operand, const std::uint64_t* compare,
                                    std::uint64_t* fetched) {
  const Result<Keyed> found = keyed(to, offset, sizeof(std::uint64_t));
  if (!found) return found.error();
  return endpoint_.control(among, {to.target->peer, found.value().key, found.value().offset}, call, operand, compare,
                           fetched);
}

Status FabricRoute::atomic_by_nic(BusyTarget& to, Pending& among, const DataOperation& operation) {
  const bool swap = operation.kind == OperationKind::kCompareAndSwap;
  if (!swap && operation.op != ReduceOp::kSum && operation.op != ReduceOp::kNoOp) return combine_by_nic(to, operation);
  const ControlCall call = swap                             ? ControlCall::kCompareAndSwap
                           : operation.op == ReduceOp::kSum ? ControlCall::kFetchAdd
                                                            : ControlCall::kRead;
  for (std::size_t i = 0; i < operation.count; ++i) {
    for (Waiter waiter(waiting_, wake_event_); among.count() >= kCallsTogether;) waiter.pause();
    const std::uint64_t operand = call == ControlCall::kRead ? 1 : word_at(element(operation.origin, i));
    const std::uint64_t compare = word_at(operation.compare);
    Status status = control_element(to, among, call, operation.offset + i * kWord, &operand, &compare,
                                    reinterpret_cast<std::uint64_t*>(element(operation.fetched, i)));
    if (!status) return status;
  }
  return {};
}

// Operations for which adapters have no atomic: reads elements, combines them here and compare-and-swaps them, again
// after a pause where another origin has changed an element meanwhile.
Status FabricRoute::combine_by_nic(BusyTarget& to, const DataOperation& operation) {
  struct Element {
    std::size_t index;
    std::uint64_t before, after, seen;
  };
  std::vector<Element> left;
  for (std::size_t first = 0; first < operation.count; first += kCallsTogether) {
    for (std::size_t i = first; i < std::min(first + kCallsTogether, operation.count); ++i)
      left.push_back({i, 0, 0, 0});
    Backoff backoff;
    for (bool read = true; !left.empty(); read = false) {
      Pending own;
      Status status;
      for (Element& each : left) {
        const std::uint64_t offset = operation.offset + each.index * kWord;
        if (read) {
          constexpr std::uint64_t kOneWord = 1;
          status = control_element(to, own, ControlCall::kRead, offset, &kOneWord, nullptr, &each.before);
        } else {
          each.after = each.before;
          combine(AtomicMethod::kLocked, operation.op, operation.type, reinterpret_cast<std::byte*>(&each.after),
                  element(operation.origin, each.index), nullptr, 1);
          status =
              control_element(to, own, ControlCall::kCompareAndSwap, offset, &each.after, &each.before, &each.seen);
        }
        if (!status) break;
      }
      Status done = wait_for(own);
      if (!status) return status;
      if (!done) return done;
      if (read) continue;
      std::erase_if(left, [&](Element& each) {
        if (each.seen != std::exchange(each.before, each.seen)) return false;
        if (operation.fetched != nullptr) std::memcpy(element(operation.fetched, each.index), &each.seen, kWord);
        return true;
      });
      if (!left.empty()) backoff.pause(waiting_);
    }
  }
  return {};
}

void FabricRoute::atomic_at(int rank, const DataOperation& operation) {
  const auto carry_out = [&]() -> Status {
    const Result<FabricTargets::Use> used = use(rank);
    if (!used) return used.error();
    Pending pending;
    pending.towards(rank);
    Status issued = atomic_by_nic(*used.value(), pending, operation);
    Status done = wait_for(pending);
    return issued ? std::move(done) : std::move(issued);
  };
  if (Status done = carry_out(); !done)
    log(LogLevel::kError, "an atomic on rank {} by the adapter: {}", rank, done.error().text);
}

// The halves of large puts and gets that go by the second device (fabric/second_rail.hpp).

// A transfer is not larger than the memory. So memory that is smaller than the smallest split transfer needs no
// registration.
void FabricRoute::register_at_second_rail(std::byte* base, std::size_t bytes, std::uint64_t wanted_key) {
  constexpr std::uint64_t kMostKey = std::numeric_limits<decltype(TargetDescription::second_key)>::max();
  Endpoint& endpoint = rail_->rail.endpoint();
  Result<Endpoint::Registration> data = endpoint.register_memory(base, bytes, wanted_key);
  const bool chosen = endpoint.keys_are_chosen();
  const std::uint64_t key = data ? data.value().key.key : 0;
  if (!data || chosen != endpoint_.keys_are_chosen() || (!chosen && (key == 0 || key > kMostKey))) {
    rail_->why_not = data ? "its memory keys do not have 32 bits" : data.error().text;
    return;
  }
  rail_->data = std::move(data.value().region);
  if (!chosen) own_.second_key = static_cast<std::uint32_t>(key);
}

// Issues a large put or get from its byte `begin` on by the second rail.
Status FabricRoute::issue_by_second_rail(BusyTarget& to, Pending& among, const DataOperation& operation,
                                         std::size_t begin) {
  const Result<Peer> peer = rail_->rail.find(to.target->peer, waiting_, wake_event_);
  if (!peer) return among.named(peer.error());
  const TargetDescription target = targets_.description(*to.target);
  // Where processes choose keys, they have chosen the same for both rails.
  const std::uint64_t key = target.second_key != 0 ? target.second_key : target.data_key.key;
  const Endpoint::Place place{peer.value(), {target.data_key.base, key}, operation.offset + begin};
  const std::size_t bytes = operation.count - begin;
  if (operation.kind == OperationKind::kGet)
    return rail_->rail.endpoint().read(among, place, static_cast<std::byte*>(operation.fetched) + begin, bytes);
  Status written =
      rail_->rail.endpoint().write(among, place, static_cast<const std::byte*>(operation.origin) + begin, bytes);
  if (written && rail_->rail.reads_back()) {
    const auto held = targets_.hold(*to.target);
    if (to.read_back == nullptr) to.read_back = std::make_unique<ReadBack>();
    to.read_back->written(place);
  }
  return written;
}

// Waits for the halves that went by the second rail, and reads a word back behind them where that is needed.
Status FabricRoute::complete_second_rail(BusyTarget& to) {
  Status first = wait_for(to.second_rail);
  if (rail_ == nullptr) return first;
  std::optional<ReadBack::Word> word;
  {
    const auto held = targets_.hold(*to.target);
    if (to.read_back != nullptr) word = to.read_back->next();
  }
  if (!word) return first;
  std::uint64_t ignored = 0;
  Pending pending;
  pending.towards(to.rank);
  Status read = rail_->rail.endpoint().read(pending, word->place, &ignored, sizeof ignored);
  Status waited = wait_for(pending);
  {
    const auto held = targets_.hold(*to.target);
    to.read_back->done(word->number);
  }
  if (!first) return first;
  return read ? std::move(waited) : std::move(read);
}

}  // namespace farside

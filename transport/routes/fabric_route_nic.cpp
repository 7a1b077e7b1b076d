// SPDX-License-Identifier: BSD-3-Clause
// Accumulates of 64-bit integers in the atomicity domain nic, by atomics of the target's adapter. Elements of a sum
// are one fetch-add each, issued without waiting. Operations for which adapters have no atomic use compare-and-swaps,
// and wait for them.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "transport/base/log.hpp"
#include "transport/base/waiter.hpp"
#include "transport/routes/fabric_route.hpp"

namespace farside {
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

}  // namespace farside

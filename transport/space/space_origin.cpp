// SPDX-License-Identifier: BSD-3-Clause
// Accumulates by their origin, in a space without handlers (FARSIDE_PROGRESS=none), for which adapters have no
// atomics. On every route the origin takes a lock at the target, in the domain nic, and reads, combines and writes
// back elements. Tickets are served in order. A waiter probes the lock the less often, the more tickets are ahead of
// its own.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/space/origin_lock.hpp"
#include "transport/space/space.hpp"

namespace farside {
namespace {

// Repeats a step after an error: the connection may have ended, and the next attempt makes it again. A process that
// abandons the lock after it took a ticket blocks all others.
constexpr int kAttempts = 3;
template <class Step>
Status attempt(Step&& step) {
  Status done;
  for (int i = 0; i < kAttempts; ++i) {
    done = step();
    if (done) return done;
  }
  log(LogLevel::kError, "the lock for accumulates by origins was not released, and other ranks may wait for it: {}",
      done.error().text);
  return done;
}

}  // namespace

Status Space::step_on_origin_lock(Target& to, Pending& among, ControlCall call, std::uint64_t operand,
                                  std::uint64_t* fetched) {
  return fabric().control(among, {to.peer, to.control_key, offsetof(Header, origin_lock)}, call, &operand, nullptr,
                          fetched);
}

Status Space::take_origin_lock(Target& to, std::uint32_t& ticket) {
  const auto rank = static_cast<int>(&to - targets_.data());
  std::uint64_t word = 0;
  const auto step = [&](ControlCall call) {
    Pending pending;
    pending.towards(rank);
    Status issued = step_on_origin_lock(to, pending, call, OriginLockWord::kArrive, &word);
    return issued ? wait_for(pending) : std::move(issued);
  };
  if (Status drawn = step(ControlCall::kFetchAdd); !drawn) return drawn;
  ticket = OriginLockWord::next(word);
  for (Waiter waiter(process_, wake_event()); OriginLockWord::ahead(word, ticket) != 0;) {
    for (std::uint32_t i = OriginLockWord::ahead(word, ticket); i > 0; --i) waiter.pause();
    if (Status looked = attempt([&] { return step(ControlCall::kRead); }); !looked) return looked;
  }
  return {};
}

// The adapter executes the release behind the writes, which were issued on the same connection.
Status Space::release_origin_lock(Target& to, std::uint32_t ticket) {
  if (to.outstanding != nullptr) {
    return attempt([&] {
      return step_on_origin_lock(to, to.outstanding->atomics, ControlCall::kFetchAdd, OriginLockWord::depart(ticket),
                                 nullptr);
    });
  }
  // Stores of this process must be visible before the release.
  stores_.made();
  stores_.drain();
  Pending pending;
  Status issued = step_on_origin_lock(to, pending, ControlCall::kFetchAdd, OriginLockWord::depart(ticket), nullptr);
  return issued ? wait_for(pending) : std::move(issued);
}

Status Space::read_part(Target& to, std::uint64_t offset, std::byte* into, std::size_t bytes) {
  if (to.route == RouteKind::kCma) return read_process_memory(to.pid, to.address + offset, into, bytes);
  Pending pending;
  pending.towards(static_cast<int>(&to - targets_.data()));
  Status issued = fabric().read(pending, {to.peer, to.data_key, offset}, into, bytes);
  return issued ? wait_for(pending) : std::move(issued);
}

Status Space::write_part(Target& to, std::uint64_t offset, const std::byte* from, std::size_t bytes) {
  if (to.route == RouteKind::kCma) return write_process_memory(to.pid, to.address + offset, from, bytes);
  return fabric().write(to.outstanding->writes, {to.peer, to.data_key, offset}, from, bytes);
}

// Precondition: at most LocalMemory::kSlotBytes, so that a write copies its data when it is issued.
Status Space::combine_part_by_origin(Target& to, const DataOperation& part) {
  const bool swap = part.kind == OperationKind::kCompareAndSwap;
  const auto combine_at = [&](std::byte* at) {
    if (swap) {
      farside::compare_and_swap(AtomicMethod::kLocked, part.type, at, part.origin, part.compare, part.fetched);
    } else {
      combine(AtomicMethod::kLocked, part.op, part.type, at, part.origin, part.fetched, part.count);
    }
  };
  if (to.data != nullptr) {
    combine_at(to.data + part.offset);
    return {};
  }
  alignas(16) std::array<std::byte, LocalMemory::kSlotBytes> copy;
  const std::size_t span = span_of(part.type, part.count);
  if (Status read = read_part(to, part.offset, copy.data(), span); !read) return read;
  combine_at(copy.data());
  if (!swap && part.op == ReduceOp::kNoOp) return {};
  if (!has_gap(part.type)) return write_part(to, part.offset, copy.data(), span);
  // Writes pairs without their gaps: the bytes of a gap may be other data, which may change meanwhile.
  const BasicTypeTraits& of = traits(part.type);
  for (std::size_t i = 0; i < part.count; ++i) {
    const std::size_t first = i * of.extent, second = first + of.second;
    if (Status wrote = write_part(to, part.offset + first, copy.data() + first, of.first); !wrote) return wrote;
    if (Status wrote = write_part(to, part.offset + second, copy.data() + second, of.size - of.first); !wrote)
      return wrote;
  }
  return {};
}

// When it returns, local buffers may be reused; the operation is complete at the target with the next flush.
Status Space::combine_by_origin(Target& to, const DataOperation& operation) {
  const std::size_t extent = traits(operation.type).extent;
  const std::size_t most = LocalMemory::kSlotBytes / extent;
  count_slow(operation.type, place_of(to, operation.offset), false);
  DataOperation part = operation;
  for (std::size_t done = 0; done < operation.count; done += part.count) {
    const auto fragment = [&](auto* buffer) { return buffer != nullptr ? buffer + done * extent : nullptr; };
    part.offset = operation.offset + done * extent;
    part.count = std::min(operation.count - done, most);
    part.origin = fragment(static_cast<const std::byte*>(operation.origin));
    part.fetched = fragment(static_cast<std::byte*>(operation.fetched));
    std::uint32_t ticket = 0;
    if (Status taken = take_origin_lock(to, ticket); !taken) return taken;
    Status combined = combine_part_by_origin(to, part);
    Status left = release_origin_lock(to, ticket);
    if (!combined) return combined;
    if (!left) return left;
  }
  return {};
}

// For a mapped target: complete when it returns.
void Space::combine_by_origin_at(int rank, const std::byte* at, DataOperation operation) {
  Target& to = target(rank);
  operation.offset = static_cast<std::uint64_t>(at - to.data);
  if (Status done = combine_by_origin(to, operation); !done) {
    log(LogLevel::kError, "an accumulate on rank {}, under its lock: {}", rank, done.error().text);
  }
}

}  // namespace farside

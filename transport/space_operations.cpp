// SPDX-License-Identifier: BSD-3-Clause
// Operations on the data and control words of a space's targets, by the route of each, and their completion. How targets are
// made reachable: space.cpp.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "transport/fabric/fabric.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/regions/regions.hpp"
#include "transport/space.hpp"

namespace farside {

Result<Space::Keyed> Space::keyed(const Target& to, std::uint64_t offset, std::size_t bytes) {
  if (regions_ == nullptr) [[likely]] return Keyed{to.data_key, offset, bytes};
  const std::uint64_t address = Regions::kFirst + offset;
  const Result<Region> region = regions_->find(static_cast<int>(&to - targets_.data()), address);
  if (!region) return region.error();
  return Keyed{region.value().key, address - region.value().address, std::min(bytes, region.value().end() - address)};
}

template <class Transfer>
Status Space::by_keys(const Target& to, std::uint64_t offset, std::size_t bytes, Transfer&& transfer) {
  for (std::size_t done = 0; done < bytes;) {
    const Result<Keyed> part = keyed(to, offset + done, bytes - done);
    if (!part) return part.error();
    const Keyed& here = part.value();
    if (Status status = transfer({to.peer, here.key, here.offset}, done, here.bytes); !status) return status;
    done += here.bytes;
  }
  return {};
}

Status Space::ask_for_regions(int rank, std::uint64_t first, std::span<std::byte> page) {
  const Target& to = target(rank);
  RequestHeader header{};
  header.kind = MessageKind::kRegions;
  header.type = BasicType::kByte;
  header.fetch = 1;
  header.sender = static_cast<std::uint32_t>(rank_);
  header.region = to.region;
  header.offset = first;
  header.count = static_cast<std::uint32_t>(page.size());
  Pending pending;
  if (Status asked = fabric().request(pending, to.peer, header, nullptr, 0, page.data(), page.size()); !asked) return asked;
  return wait_for(pending);
}

Status Space::put(int rank, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own) {
  Target& to = target(rank);
  if (to.data != nullptr) [[likely]] {
    put_at(rank, to.data + offset, origin, bytes);
    return {};
  }
  count(rank, Counted::kPut, bytes);
  if (to.route == RouteKind::kCma) return write_process_memory(to.pid, to.address + offset, origin, bytes);
  return put_over_fabric(to, offset, origin, bytes, own);
}

// Before a release, one small put waits and travels in one message with it, to the agent. Where that cannot be (a second
// put, an accumulate), it travels as an atomic write, behind which the release, an atomic too, is ordered. Measured over
// loopback on one busy core: write, wait, release 49 us; atomic write and release 50; one message 34; on two cores 66, 47
// and 37. A distant peer adds its latency once more to the first.
Status Space::put_over_fabric(Target& to, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own) {
  if (std::atomic_ref(to.ordered_puts).load(std::memory_order_relaxed) == kOrderedPuts && to.outstanding->done() && bytes > 0 &&
      bytes <= kMaxPutAndAdd && regions_ == nullptr && own == nullptr) {
    const std::scoped_lock held(held_mutex_);
    if (to.held.origin == nullptr) {
      to.held = {origin, offset, bytes, false};
      return {};
    }
  }
  if (Status status = issue_held(to); !status) return status;
  return write_over_fabric(to, own != nullptr ? *own : *to.outstanding, offset, origin, bytes);
}

Space::HeldPut Space::take_held(Target& to) {
  const std::scoped_lock held(held_mutex_);
  return std::exchange(to.held, {});
}

Status Space::issue_held(Target& to) {
  const HeldPut held = take_held(to);
  return held.origin == nullptr ? Status() : write_over_fabric(to, *to.outstanding, held.offset, held.origin, held.bytes);
}

Status Space::write_over_fabric(Target& to, Outstanding& among, std::uint64_t offset, const void* origin, std::size_t bytes) {
  return by_keys(to, offset, bytes, [&](const Fabric::Place& place, std::size_t done, std::size_t part) {
    return write_behind_key(to, among, {place.key, place.offset, part}, to.address + offset + done,
                            static_cast<const std::byte*>(origin) + done);
  });
}

// As an atomic write while a release is expected, in whatever elements fit: it takes 3 to 5 us longer than a write, and 3
// to 5 ns more per element.
Status Space::write_behind_key(Target& to, Outstanding& among, const Keyed& keyed, std::uint64_t address, const void* origin) {
  constexpr std::size_t kMostElements = 2048;
  const std::size_t bytes = keyed.bytes;
  const Fabric::Place place{to.peer, keyed.key, keyed.offset};
  // Relaxed: threads that put at the same time may lose a step, no more.
  const std::atomic_ref ordered_puts(to.ordered_puts);
  const std::uint32_t left = ordered_puts.load(std::memory_order_relaxed);
  if (left > 0 && fabric().orders_atomics() && to.outstanding->transfers.done() && to.outstanding->requests.done()) {
    for (const BasicType type : {BasicType::kUint64, BasicType::kUint32, BasicType::kUint8}) {
      const std::size_t size = traits(type).size;
      if (bytes % size != 0 || address % size != 0) continue;
      const std::size_t limit = fabric().atomic_limit(Fabric::AtomicCall::kPlain, ReduceOp::kReplace, type);
      if (bytes / size > std::min(kMostElements, limit)) break;
      ordered_puts.store(left - 1, std::memory_order_relaxed);
      return fabric().atomic(among.atomics, place, ReduceOp::kReplace, type, origin, nullptr, bytes / size);
    }
  }
  return fabric().write(among.transfers, place, origin, bytes);
}

Status Space::get(int rank, std::uint64_t offset, void* origin, std::size_t bytes, Outstanding* own) {
  Target& from = target(rank);
  if (from.data != nullptr) [[likely]] {
    get_at(rank, from.data + offset, origin, bytes);
    return {};
  }
  count(rank, Counted::kGet, bytes);
  if (from.route == RouteKind::kCma) return read_process_memory(from.pid, from.address + offset, origin, bytes);
  if (Status status = issue_held(from); !status) return status;
  Pending& among = own != nullptr ? own->transfers : from.outstanding->transfers;
  return by_keys(from, offset, bytes, [&](const Fabric::Place& place, std::size_t done, std::size_t part) {
    return fabric().read(among, place, static_cast<std::byte*>(origin) + done, part);
  });
}

void Space::count_otherwise(int rank, Counted what, std::size_t bytes) const {
  if (counts_ != nullptr) return counts_->add(rank, what, bytes);
  process_.statistics().add(route(rank), what, bytes);
}

void Space::count_slow(BasicType type, const void* address, bool by_agent) const {
  if (counts_ == nullptr) [[likely]] return;
  SlowAccumulate why = SlowAccumulate::kProvider;
  if (always_locked_) {
    why = SlowAccumulate::kCma;
  } else if (!traits(type).cpu_atomics) {
    why = SlowAccumulate::kType;
  } else if (atomic_way(type, address) == AtomicWay::kLocked) {
    why = SlowAccumulate::kUnaligned;
  } else if (way(type, address) == AtomicWay::kLocked) {
    why = SlowAccumulate::kFloatingPoint;
  }
  counts_->add_slow(why, by_agent);
}

Status Space::accumulate(int rank, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin,
                         void* fetched, std::size_t elements, Access access, Outstanding* own) {
  Target& to = target(rank);
  if (to.data != nullptr) [[likely]] {
    accumulate_at(rank, to.data + offset, op, type, origin, fetched, elements, access);
    return {};
  }
  count(rank, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * traits(type).extent);
  if (op == ReduceOp::kNoOp) {
    if (fetched == nullptr) return {};
    origin = nullptr;
  }
  if (to.route == RouteKind::kCma) return accumulate_by_cma(to, offset, op, type, origin, fetched, elements);
  return accumulate_over_fabric(to, own != nullptr ? *own : *to.outstanding, offset, op, type, origin, fetched, elements);
}

void Space::accumulate_at(int rank, std::byte* at, ReduceOp op, BasicType type, const void* origin, void* fetched,
                          std::size_t elements, Access access) {
  const std::size_t extent = traits(type).extent;
  count(rank, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * extent);
  if (op == ReduceOp::kNoOp) {
    if (fetched == nullptr) return;
    origin = nullptr;
  }
  if (access == Access::kAlone) {
    combine(AtomicWay::kLocked, op, type, at, origin, fetched, elements);
    stores_.made();
    return;
  }
  if (way(type, at) == AtomicWay::kAtomic) {
    combine(AtomicWay::kAtomic, op, type, at, origin, fetched, elements);
    // Everything else is a read-modify-write, or nothing is stored.
    if (op == ReduceOp::kReplace && fetched == nullptr) stores_.made();
    return;
  }
  count_slow(type, at, false);
  // In pieces, so that no other rank waits long for the lock.
  const std::size_t most = elements * extent <= kLockedBytes ? elements : kLockedBytes / extent;
  for (std::size_t done = 0; done < elements;) {
    const std::size_t part = std::min(elements - done, most);
    const auto piece = [&](auto* buffer) { return buffer != nullptr ? buffer + done * extent : nullptr; };
    const AccumulateLock held(accumulate_lock(target(rank)));
    combine(AtomicWay::kLocked, op, type, at + done * extent, piece(static_cast<const std::byte*>(origin)),
            piece(static_cast<std::byte*>(fetched)), part);
    done += part;
  }
  stores_.made();
}

namespace {

// Pairs without their gaps, which belong to someone else and may change meanwhile.
Status write_pairs(pid_t pid, std::uint64_t remote, BasicType type, std::byte* local, std::size_t count) {
  const BasicTypeTraits& of = traits(type);
  const std::size_t lengths[] = {of.first, std::size_t{of.size} - of.first};
  const std::size_t offsets[] = {0, of.second};
  std::vector<iovec> here, there;
  for (std::size_t i = 0; i < count; ++i) {
    for (const int member : {0, 1}) {
      const std::size_t at = i * of.extent + offsets[member];
      here.push_back({local + at, lengths[member]});
      there.push_back({reinterpret_cast<void*>(remote + at), lengths[member]});  // NOLINT(performance-no-int-to-ptr)
    }
  }
  return write_process_memory(pid, here, there);
}

}  // namespace

Status Space::accumulate_by_cma(Target& to, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin,
                                void* fetched, std::size_t count) {
  count_slow(type, nullptr, false);
  // Read, combine, write back in pieces, so that no other rank waits long for the lock.
  alignas(16) std::array<std::byte, kLockedBytes> copy;
  const std::size_t extent = traits(type).extent;
  for (std::size_t done = 0; done < count;) {
    const std::size_t part = std::min(count - done, kLockedBytes / extent);
    const std::uint64_t at = to.address + offset + done * extent;
    const AccumulateLock held(accumulate_lock(to));
    const std::size_t span = span_of(type, part);
    if (Status status = read_process_memory(to.pid, at, copy.data(), span); !status) return status;
    combine(AtomicWay::kLocked, op, type, copy.data(),
            origin != nullptr ? static_cast<const std::byte*>(origin) + done * extent : nullptr,
            fetched != nullptr ? static_cast<std::byte*>(fetched) + done * extent : nullptr, part);
    if (op != ReduceOp::kNoOp) {
      Status status = has_gap(type) ? write_pairs(to.pid, at, type, copy.data(), part)
                                    : write_process_memory(to.pid, at, copy.data(), span);
      if (!status) return status;
    }
    done += part;
  }
  return {};
}

// Accumulates towards one target take effect in the order in which they were issued (accumulate_ordering, MPI 4.0
// section 12.7.2). Requests stay in order among themselves, and so do atomics of a provider that orders them; before one
// kind is issued the other is waited for.
Status Space::keep_order(Target& to, bool by_request) {
  if (Status status = issue_held(to); !status) return status;
  if (by_request) return wait_for(to.outstanding->atomics);
  Status requested = wait_for(to.outstanding->requests);
  if (!requested || fabric().orders_atomics()) return requested;
  return wait_for(to.outstanding->atomics);
}

Status Space::accumulate_over_fabric(Target& to, Outstanding& among, std::uint64_t offset, ReduceOp op, BasicType type,
                                     const void* origin, void* fetched, std::size_t count) {
  Fabric& fabric = this->fabric();
  const std::size_t extent = traits(type).extent;
  // The address at the target decides, as it does there; all data begins at the same alignment in every process
  // that maps it, and private data has one address.
  const auto* address = reinterpret_cast<const void*>(to.address != 0 ? to.address + offset : offset);
  const auto call = fetched != nullptr ? Fabric::AtomicCall::kFetch : Fabric::AtomicCall::kPlain;
  const Result<Keyed> place = keyed(to, offset, count * extent);
  if (!place) return place.error();
  // The agent knows no borders between regions.
  const bool by_request = way(type, address) == AtomicWay::kLocked || fabric.atomic_limit(call, op, type) == 0 ||
                          place.value().bytes < count * extent;
  if (Status status = keep_order(to, by_request); !status) return status;
  if (!by_request) {
    return fabric.atomic(among.atomics, {to.peer, place.value().key, place.value().offset}, op, type, origin, fetched, count);
  }
  count_slow(type, address, true);
  RequestHeader header{};
  header.kind = MessageKind::kAccumulate;
  header.op = op;
  header.type = type;
  header.fetch = fetched != nullptr ? 1 : 0;
  header.sender = static_cast<std::uint32_t>(rank_);
  header.region = to.region;
  for (std::size_t done = 0; done < count;) {
    const std::size_t part = std::min(count - done, kMaxPayload / extent);
    header.offset = offset + done * extent;
    header.count = static_cast<std::uint32_t>(part);
    const void* payload = origin != nullptr ? static_cast<const std::byte*>(origin) + done * extent : nullptr;
    void* result = fetched != nullptr ? static_cast<std::byte*>(fetched) + done * extent : nullptr;
    Status status = fabric.request(among.requests, to.peer, header, payload, origin != nullptr ? span_of(type, part) : 0,
                                   result, fetched != nullptr ? part * extent : 0);
    if (!status) return status;
    done += part;
  }
  return {};
}

void Space::compare_and_swap_at(int rank, std::byte* at, BasicType type, const void* origin, const void* compare,
                                void* fetched) {
  count(rank, Counted::kCompareAndSwap, traits(type).extent);
  if (way(type, at) == AtomicWay::kAtomic) [[likely]] {
    farside::compare_and_swap(AtomicWay::kAtomic, type, at, origin, compare, fetched);
    return;
  }
  count_slow(type, at, false);
  const AccumulateLock held(accumulate_lock(target(rank)));
  farside::compare_and_swap(AtomicWay::kLocked, type, at, origin, compare, fetched);
  stores_.made();
}

Status Space::compare_and_swap(int rank, std::uint64_t offset, BasicType type, const void* origin,
                               const void* compare, void* fetched) {
  Target& to = target(rank);
  if (to.data != nullptr) [[likely]] {
    compare_and_swap_at(rank, to.data + offset, type, origin, compare, fetched);
    return {};
  }
  const std::size_t extent = traits(type).extent;
  count(rank, Counted::kCompareAndSwap, extent);
  if (to.route == RouteKind::kCma) {
    count_slow(type, nullptr, false);
    std::array<std::byte, 64> copy;
    const AccumulateLock held(accumulate_lock(to));
    if (Status status = read_process_memory(to.pid, to.address + offset, copy.data(), extent); !status) return status;
    farside::compare_and_swap(AtomicWay::kLocked, type, copy.data(), origin, compare, fetched);
    return write_process_memory(to.pid, to.address + offset, copy.data(), extent);
  }
  Fabric& fabric = this->fabric();
  const auto* address = reinterpret_cast<const void*>(to.address != 0 ? to.address + offset : offset);
  const Result<Keyed> place = keyed(to, offset, extent);
  if (!place) return place.error();
  const bool by_request = way(type, address) == AtomicWay::kLocked || place.value().bytes < extent ||
                          fabric.atomic_limit(Fabric::AtomicCall::kCompare, ReduceOp::kReplace, type) == 0;
  if (Status status = keep_order(to, by_request); !status) return status;
  if (!by_request) {
    return fabric.compare_and_swap(to.outstanding->atomics, {to.peer, place.value().key, place.value().offset}, type, origin, compare,
                                   fetched);
  }
  count_slow(type, address, true);
  std::array<std::byte, 64> elements;
  std::memcpy(elements.data(), compare, extent);
  std::memcpy(elements.data() + extent, origin, extent);
  RequestHeader header{};
  header.kind = MessageKind::kCompareAndSwap;
  header.type = type;
  header.fetch = 1;
  header.sender = static_cast<std::uint32_t>(rank_);
  header.region = to.region;
  header.offset = offset;
  header.count = 1;
  Status status = fabric.request(to.outstanding->requests, to.peer, header, elements.data(), 2 * extent, fetched, extent);
  if (!status) return status;
  // The elements are on this stack.
  return wait_for(to.outstanding->requests);
}

Status Space::wait_for(Pending& pending) {
  for (Waiter waiter(process_, bell()); !pending.done();) waiter.pause();
  return pending.take_error();
}

std::unique_ptr<Outstanding> Space::own_outstanding(int rank) {
  Target& to = target(rank);
  return to.outstanding == nullptr ? nullptr : std::make_unique<Outstanding>(*to.outstanding);
}

void Space::give_up(int rank, std::unique_ptr<Outstanding> own) {
  if (own == nullptr) return;
  const std::scoped_lock held(held_mutex_);
  target(rank).given_up.push_back(std::move(own));
}

Status Space::complete(Target& to) {
  if (to.outstanding == nullptr) return {};
  std::atomic_ref(to.ordered_puts).store(0, std::memory_order_relaxed);
  Status first = issue_held(to);
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  for (Pending* pending : {&to.outstanding->transfers, &to.outstanding->atomics, &to.outstanding->requests}) {
    keep(wait_for(*pending));
  }
  const std::scoped_lock held(held_mutex_);
  std::erase_if(to.given_up, [&](const std::unique_ptr<Outstanding>& own) {
    const bool done = own->done();
    if (done) keep(own->take_error());
    return done;
  });
  return first;
}

Status Space::settle(int rank) {
  Target& to = target(rank);
  if (to.outstanding == nullptr) return {};  // inside the node nothing is outstanding
  const bool alone = to.outstanding->done();
  {
    const std::scoped_lock held(held_mutex_);
    to.held.settled = alone;
    if (alone) return {};
  }
  if (Status status = issue_held(to); !status) return status;
  const bool ordered = fabric().orders_atomics() && to.outstanding->transfers.done() && to.outstanding->requests.done();
  return ordered ? Status() : complete(to);
}

Status Space::flush(int rank) {
  Status status = complete(target(rank));
  settle_stores();
  return status;
}

Status Space::flush_all() {
  if (all_immediate_) [[likely]] {
    settle_stores();
    return {};
  }
  Status first;
  for (Target& to : targets_) {
    Status status = complete(to);
    if (!status && first) first = std::move(status);
  }
  settle_stores();
  return first;
}

Status Space::add_with_held(Target& to, std::uint32_t word, Pending& pending, const std::uint64_t* operand,
                            std::uint64_t* fetched, const HeldPut& held) {
  RequestHeader header{};
  header.kind = MessageKind::kPutAndAdd;
  header.op = ReduceOp::kReplace;
  header.type = BasicType::kByte;
  header.fetch = 1;
  header.sender = static_cast<std::uint32_t>(rank_);
  header.region = to.region;
  header.offset = held.offset;
  header.count = static_cast<std::uint32_t>(held.bytes);
  return fabric().put_and_add(pending, to.peer, header, held.origin, {word, *operand}, fetched);
}

Status Space::control(ControlCall call, int rank, std::uint32_t word, Pending& pending, const std::uint64_t* operand,
                      const std::uint64_t* compare, std::uint64_t* fetched) {
  Target& to = target(rank);
  process_.statistics().add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  const Fabric::Place place{to.peer, to.control_key, word};
  Fabric& fabric = this->fabric();
  constexpr BasicType kWord = BasicType::kUint64;
  if (call == ControlCall::kFetchAdd) {
    std::unique_lock held(held_mutex_);
    if (to.held.settled && to.held.origin != nullptr) {
      const HeldPut put = std::exchange(to.held, {});
      held.unlock();
      return add_with_held(to, word, pending, operand, fetched, put);
    }
  }
  switch (call) {
    case ControlCall::kFetchAdd: return fabric.atomic(pending, place, ReduceOp::kSum, kWord, operand, fetched, 1);
    case ControlCall::kCompareAndSwap: return fabric.compare_and_swap(pending, place, kWord, operand, compare, fetched);
    case ControlCall::kRead: return fabric.atomic(pending, place, ReduceOp::kNoOp, kWord, operand, fetched, 1);
    case ControlCall::kWrite: return fabric.atomic(pending, place, ReduceOp::kReplace, kWord, operand, nullptr, 1);
  }
  return {};
}

}  // namespace farside

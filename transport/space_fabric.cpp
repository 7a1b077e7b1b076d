// SPDX-License-Identifier: BSD-3-Clause
// Operations of a space over the fabric: what travels alone and what together, in which order it takes effect, and what a
// release waits for (transport/README.md, "How order is kept over the fabric").
#include <algorithm>
#include <atomic>
#include <utility>

#include "transport/fabric/fabric.hpp"
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
    if (Status status = transfer(Fabric::Place{to.peer, here.key, here.offset}, done, here.bytes); !status) return status;
    done += here.bytes;
  }
  return {};
}

Status Space::ask_for_regions(int rank, std::uint64_t first, std::span<std::byte> page) {
  Pending pending;
  if (Status asked = fabric().ask_for_regions(pending, agent_of(target(rank)), first, page); !asked) return asked;
  return wait_for(pending);
}

// Whether a small operation waits for others to travel with. The first travels alone and at once, so that it is under way
// while the application computes; those that come before it is over would each cost the provider's 10 us or so.
bool Space::wants_company(const Target& to, bool atomic) const {
  const Outstanding& all = *to.outstanding;
  if (to.release_expected || !all.gathered.empty()) return true;
  // An atomic would have to wait for the requests, a request for the atomics.
  return atomic ? !all.requests.done() || all.atomics.count() >= kAtomicsAlone : !all.done();
}

Status Space::operate_over_fabric(Target& to, const DataOperation& operation, Outstanding* own) {
  if (operation.count == 0) return {};
  Outstanding& all = *to.outstanding;
  if (own != nullptr) {
    // In order behind what was gathered.
    Status before = operation.atomic() ? issue_gathered(to) : Status();
    return before ? issue(to, *own, operation) : std::move(before);
  }
  while (true) {
    {
      const std::scoped_lock held(gathered_mutex_);
      const std::size_t most = to.release_expected ? kMostBeforeRelease : kMostGathered;
      if (operation.bytes() <= most && wants_company(to, operation.atomic())) {
        if (all.gathered.add(operation)) return {};
      } else if (all.gathered.empty() && !all.sending) {
        break;
      }
    }
    // There is no room left, or this one must not overtake what was gathered.
    if (Status status = issue_gathered(to); !status) return status;
  }
  return issue(to, all, operation);
}

// A list that may wait as small operations do.
Status Space::keep_gathered(Target& to, std::unique_ptr<OperationList> list) {
  while (true) {
    {
      const std::scoped_lock held(gathered_mutex_);
      Outstanding& all = *to.outstanding;
      if (!wants_company(to, list->has_atomics())) break;
      if (all.gathered.empty()) {
        all.gathered.list = std::move(list);
        return {};
      }
    }
    if (Status status = issue_gathered(to); !status) return status;
  }
  return issue_list(to, nullptr, std::move(list));
}

// Takes a turn: what one thread has taken is issued before another takes more.
Gathered Space::take_gathered(Outstanding& among, bool even_nothing) {
  for (Waiter waiter(process_, bell());; waiter.pause()) {
    const std::scoped_lock held(gathered_mutex_);
    if (among.sending) continue;
    if (among.gathered.empty() && !even_nothing) return {};
    among.sending = true;
    return std::exchange(among.gathered, {});
  }
}

void Space::gathered_sent(Outstanding& among) {
  const std::scoped_lock held(gathered_mutex_);
  among.sending = false;
}

Status Space::issue_gathered(Target& to) {
  Outstanding& all = *to.outstanding;
  Gathered taken = take_gathered(all, false);
  if (taken.empty()) return {};
  Status status = taken.list != nullptr ? send_list(to, all.requests, std::move(taken.list)) : issue(to, all, *taken.one);
  gathered_sent(all);
  return status;
}

Status Space::issue(Target& to, Outstanding& among, const DataOperation& operation) {
  switch (operation.kind) {
    case OperationKind::kPut:
      return by_keys(to, operation.offset, operation.count, [&](const Fabric::Place& place, std::size_t done, std::size_t part) {
        return fabric().write(among.transfers, place, static_cast<const std::byte*>(operation.origin) + done, part);
      });
    case OperationKind::kGet:
      return by_keys(to, operation.offset, operation.count, [&](const Fabric::Place& place, std::size_t done, std::size_t part) {
        return fabric().read(among.transfers, place, static_cast<std::byte*>(operation.fetched) + done, part);
      });
    case OperationKind::kAccumulate:
    case OperationKind::kCompareAndSwap: break;
  }
  return issue_atomic(to, among, operation);
}

// Accumulates towards one target take effect in the order in which they were issued (accumulate_ordering, MPI 4.0
// section 12.7.2). Requests stay in order among themselves, and so do atomics of a provider that orders them; before one
// kind is issued the other is waited for.
Status Space::issue_atomic(Target& to, Outstanding& among, const DataOperation& operation) {
  Fabric& fabric = this->fabric();
  const bool swap = operation.kind == OperationKind::kCompareAndSwap;
  // The address at the target decides, as it does there; all data begins at the same alignment in every process
  // that maps it, and private data has one address.
  const auto* address = reinterpret_cast<const void*>(to.address != 0 ? to.address + operation.offset : operation.offset);
  const auto call = swap                           ? Fabric::AtomicCall::kCompare
                    : operation.fetched != nullptr ? Fabric::AtomicCall::kFetch
                                                   : Fabric::AtomicCall::kPlain;
  const Result<Keyed> found = keyed(to, operation.offset, operation.bytes());
  if (!found) return found.error();
  // The agent knows no borders between regions.
  const bool by_agent = way(operation.type, address) == AtomicWay::kLocked ||
                        fabric.atomic_limit(call, operation.op, operation.type) == 0 || found.value().bytes < operation.bytes();
  if (by_agent) {
    count_slow(operation.type, address, true);
    return issue_by_agent(to, among, operation);
  }
  if (Status requested = wait_for(to.outstanding->requests); !requested) return requested;
  if (!fabric.orders_atomics()) {
    if (Status done = wait_for(to.outstanding->atomics); !done) return done;
  }
  const Fabric::Place place{to.peer, found.value().key, found.value().offset};
  return swap ? fabric.compare_and_swap(among.atomics, place, operation.type, operation.origin, operation.compare, operation.fetched)
              : fabric.atomic(among.atomics, place, operation.op, operation.type, operation.origin, operation.fetched,
                              operation.count);
}

Status Space::issue_by_agent(Target& to, Outstanding& among, const DataOperation& operation) {
  const std::size_t extent = traits(operation.type).extent;
  DataOperation part = operation;
  for (std::size_t done = 0; done < operation.count; done += part.count) {
    const auto piece = [&](auto* buffer) { return buffer != nullptr ? buffer + done * extent : nullptr; };
    part.offset = operation.offset + done * extent;
    part.count = std::min(operation.count - done, OperationList::kMostInOne / extent);
    part.origin = piece(static_cast<const std::byte*>(operation.origin));
    part.fetched = piece(static_cast<std::byte*>(operation.fetched));
    auto list = std::make_unique<OperationList>();
    list->add(part);
    if (Status status = send_list(to, among.requests, std::move(list)); !status) return status;
  }
  return {};
}

Status Space::issue_list(Target& to, Outstanding* own, std::unique_ptr<OperationList> list) {
  Status before = issue_gathered(to);
  Status sent = send_list(to, own != nullptr ? own->requests : to.outstanding->requests, std::move(list));
  return before ? std::move(sent) : std::move(before);
}

Status Space::send_list(Target& to, Pending& among, std::unique_ptr<OperationList> list) {
  // What has failed before is told; these were accepted, and go all the same.
  Status before;
  if (list->has_atomics()) before = wait_for(to.outstanding->atomics);
  for (Waiter waiter(process_, bell()); to.outstanding->requests.count() >= kMostLists;) waiter.pause();
  Status issued = fabric().carry_out(among, agent_of(to), std::move(list));
  return before ? std::move(issued) : std::move(before);
}

Status Space::complete(Target& to) {
  if (to.outstanding == nullptr) return {};
  Status first;
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  keep(issue_gathered(to));
  for (Pending* pending : {&to.outstanding->transfers, &to.outstanding->atomics, &to.outstanding->requests}) {
    keep(wait_for(*pending));
  }
  const std::scoped_lock held(gathered_mutex_);
  to.release_expected = false;
  to.release_travels = false;
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
  // An agent that finds memory detached would not come to the release.
  if (regions_ != nullptr) return complete(to);
  Outstanding& all = *to.outstanding;
  bool travels = false;
  {
    const std::scoped_lock held(gathered_mutex_);
    travels = !all.gathered.empty() || all.sending || !all.requests.done();
    to.release_travels = travels;
  }
  Status first = wait_for(all.transfers);
  if (travels || !fabric().orders_atomics()) {
    if (Status status = wait_for(all.atomics); !status && first) first = std::move(status);
  }
  return first;
}

Status Space::add_behind_gathered(Target& to, std::uint32_t word, Pending& pending, std::uint64_t operand, std::uint64_t* fetched) {
  Outstanding& all = *to.outstanding;
  Gathered taken = take_gathered(all, true);
  if (!taken.empty()) taken.make_list();
  Status status = fabric().carry_out_and_add(pending, agent_of(to), std::move(taken.list), {word, operand}, fetched);
  gathered_sent(all);
  return status;
}

Status Space::control(ControlCall call, int rank, std::uint32_t word, Pending& pending, const std::uint64_t* operand,
                      const std::uint64_t* compare, std::uint64_t* fetched) {
  Target& to = target(rank);
  process_.statistics().add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  const Fabric::Place place{to.peer, to.control_key, word};
  Fabric& fabric = this->fabric();
  constexpr BasicType kWord = BasicType::kUint64;
  const bool travels = [&] {
    const std::scoped_lock held(gathered_mutex_);
    return to.release_travels;
  }();
  switch (call) {
    case ControlCall::kFetchAdd:
      return travels ? add_behind_gathered(to, word, pending, *operand, fetched)
                     : fabric.atomic(pending, place, ReduceOp::kSum, kWord, operand, fetched, 1);
    case ControlCall::kCompareAndSwap: return fabric.compare_and_swap(pending, place, kWord, operand, compare, fetched);
    case ControlCall::kRead: return fabric.atomic(pending, place, ReduceOp::kNoOp, kWord, operand, fetched, 1);
    case ControlCall::kWrite: return fabric.atomic(pending, place, ReduceOp::kReplace, kWord, operand, nullptr, 1);
  }
  return {};
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// Operations of a space over the fabric: which are coalesced, in which order they take effect, and what a release
// waits for (transport/README.md, "How order is kept over the fabric").
#include <algorithm>
#include <utility>

#include "transport/fabric/fabric.hpp"
#include "transport/space/regions.hpp"
#include "transport/space/space.hpp"

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
    if (Status status = transfer(Fabric::Place{to.peer, here.key, here.offset}, done, here.bytes); !status)
      return status;
    done += here.bytes;
  }
  return {};
}

Status Space::ask_for_regions(int rank, std::uint64_t first, std::span<std::byte> page) {
  Pending pending;
  if (Status asked = fabric().ask_for_regions(pending, handler_of(target(rank)), first, page); !asked) return asked;
  return wait_for(pending);
}

// Returns whether a small operation is coalesced. The first one is issued at once, so that it is under way while the
// application computes. Operations that follow before it completes would each cost about 10 us in the provider. In a
// burst the first operation is coalesced as well.
bool Space::coalesces(const AllOutstanding& all, bool atomic, bool in_burst) const {
  if ((all.release_expected && !control_by_nic_) || !all.coalesced.empty()) return true;
  // An adapter takes the next put or get at once, and needs no process at the target.
  if (control_by_nic_ && !atomic) return false;
  if (in_burst && all.done()) return true;
  return atomic ? !all.requests.done() : !all.done();
}

Status Space::operate_over_fabric(Target& to, const DataOperation& operation, Outstanding* own) {
  if (operation.count == 0) return {};
  AllOutstanding& all = *to.outstanding;
  if (operation.atomic() && by_nic(operation.type, place_of(to, operation.offset)))
    return issue(to, own != nullptr ? *own : all, operation);
  if (own != nullptr) {
    // Keeps the order behind the coalesced operations.
    Status before = operation.atomic() ? issue_coalesced(to) : Status();
    return before ? issue(to, *own, operation) : std::move(before);
  }
  std::optional<Bursts::Next> row;
  while (true) {
    {
      const std::scoped_lock held(coalesced_mutex_);
      const std::size_t most = all.release_expected ? kMostBeforeRelease : kMostCoalesced;
      const bool small = operation.bytes() <= most;
      // Before a release all small operations are coalesced anyway.
      if (small && !row && !all.release_expected) {
        row = all.bursts.comes();
      } else if (row == Bursts::Next::kTooLate) {
        row = Bursts::Next::kAsEver;
      }
      if (small && row != Bursts::Next::kTooLate && coalesces(all, operation.atomic(), row == Bursts::Next::kWaits)) {
        if (row) all.bursts.joined();
        if (all.coalesced.add(operation)) return {};
      } else if (all.coalesced.empty() && !all.sending) {
        break;
      }
    }
    // The list has no room, or this operation must not overtake the coalesced ones.
    if (Status status = issue_coalesced(to); !status) return status;
  }
  return issue(to, all, operation);
}

// Leaves a list coalesced under the same rules as a small operation, or issues it.
Status Space::keep_coalesced(Target& to, std::unique_ptr<OperationList> list) {
  AllOutstanding& all = *to.outstanding;
  while (true) {
    {
      const std::scoped_lock held(coalesced_mutex_);
      if (!coalesces(all, list->has_atomics(), false)) break;
      if (all.coalesced.empty()) {
        all.coalesced.list = std::move(list);
        return {};
      }
    }
    if (Status status = issue_coalesced(to); !status) return status;
  }
  return send_behind_coalesced(to, nullptr, std::move(list));
}

// Takes the coalesced operations. They are issued (coalesced_sent) before another thread takes more. `even_nothing`:
// excludes other threads even if there are none.
Coalesced Space::take_coalesced(AllOutstanding& all, bool even_nothing) {
  for (Waiter waiter(process_, wake_event());; waiter.pause()) {
    const std::scoped_lock held(coalesced_mutex_);
    if (all.sending) continue;
    if (all.coalesced.empty() && !even_nothing) return {};
    all.sending = true;
    return std::exchange(all.coalesced, {});
  }
}

void Space::coalesced_sent(AllOutstanding& all, Coalesced sent) {
  const std::scoped_lock held(coalesced_mutex_);
  all.sending = false;
  all.coalesced.reuse(std::move(sent));
}

bool Space::may_defer_lock(int rank) const {
  const Target& to = targets_[static_cast<std::size_t>(rank)];
  // Not in a dynamic space: if memory was detached meanwhile, the handler would not execute the release step.
  return to.outstanding != nullptr && to.control == nullptr && !control_by_nic_ && regions_ == nullptr;
}

void Space::defer_lock(int rank, std::function<Status()> take) {
  AllOutstanding& all = *target(rank).outstanding;
  const std::scoped_lock held(coalesced_mutex_);
  all.deferred = std::move(take);
  all.release_expected = true;
}

// Called before an operation is issued that is not coalesced.
Status Space::acquire_deferred_lock_first(AllOutstanding& all) {
  if (!all.deferred) [[likely]]
    return {};
  const std::function<Status()> take = std::exchange(all.deferred, nullptr);
  return take();
}

void Space::coalesce_again(AllOutstanding& all, Coalesced coalesced) {
  const std::scoped_lock held(coalesced_mutex_);
  all.coalesced = std::move(coalesced);
}

void Space::coalesce_again(int rank, std::unique_ptr<OperationList> list) {
  const std::scoped_lock held(coalesced_mutex_);
  target(rank).outstanding->coalesced.list = std::move(list);
}

Status Space::execute_locked(int rank, const ControlStep& acquire_step, const ControlStep& release_step,
                             LockedResult& result) {
  Target& to = target(rank);
  AllOutstanding& all = *to.outstanding;
  all.deferred = nullptr;
  for (int step = 0; step < 2; ++step)
    process_.statistics().add(RouteKind::kFabric, Counted::kControl, sizeof acquire_step.operand);
  Coalesced taken = take_coalesced(all, true);
  if (!taken.empty()) taken.make_list();
  Pending pending;
  pending.towards(rank);
  Status status =
      fabric().execute_locked(pending, handler_of(to), std::move(taken.list), acquire_step, release_step, result);
  coalesced_sent(all, std::move(taken));
  return status ? wait_for(pending) : std::move(status);
}

Status Space::issue_coalesced(Target& to) {
  AllOutstanding& all = *to.outstanding;
  if (all.deferred && !all.coalesced.empty()) [[unlikely]] {
    if (Status status = acquire_deferred_lock_first(all); !status) return status;
  }
  Coalesced taken = take_coalesced(all, false);
  if (taken.empty()) return {};
  Status status =
      taken.list != nullptr ? send_list(to, all.requests, std::move(taken.list)) : issue(to, all, *taken.one());
  coalesced_sent(all, std::move(taken));
  return status;
}

Status Space::issue_before_flush(Target& to) {
  {
    const std::scoped_lock held(coalesced_mutex_);
    to.outstanding->bursts.flushed();
  }
  return issue_coalesced(to);
}

Status Space::issue(Target& to, Outstanding& among, const DataOperation& operation) {
  if (Status status = acquire_deferred_lock_first(*to.outstanding); !status) return status;
  Status issued = issue_parts(to, among, operation);
  if (issued) [[likely]] return issued;
  // An operation that is reported as failed must not touch its buffers any more, so this waits for the parts that
  // were issued. Their errors, and those of other operations, are left to the call that completes them.
  for (Pending* pending : {&among.writes, &among.reads, &among.atomics, &among.requests}) await_end(*pending);
  return issued;
}

Status Space::issue_parts(Target& to, Outstanding& among, const DataOperation& operation) {
  switch (operation.kind) {
    case OperationKind::kPut:
      return by_keys(
          to, operation.offset, operation.count, [&](const Fabric::Place& place, std::size_t done, std::size_t part) {
            return fabric().write(among.writes, place, static_cast<const std::byte*>(operation.origin) + done, part);
          });
    case OperationKind::kGet:
      return by_keys(
          to, operation.offset, operation.count, [&](const Fabric::Place& place, std::size_t done, std::size_t part) {
            return fabric().read(among.reads, place, static_cast<std::byte*>(operation.fetched) + done, part);
          });
    case OperationKind::kAccumulate:
    case OperationKind::kCompareAndSwap: break;
  }
  return issue_atomic(to, among, operation);
}

// Accumulates towards one target take effect in the order in which they are issued (accumulate_ordering, MPI 4.0
// section 12.7.2): requests are ordered among themselves, and so are atomics of an adapter. No element is combined by
// both.
Status Space::issue_atomic(Target& to, Outstanding& among, const DataOperation& operation) {
  // The address at the target decides on the method, as it does at the target.
  const void* const address = place_of(to, operation.offset);
  if (by_nic(operation.type, address)) return atomic_by_nic(to, among.atomics, operation);
  count_slow(operation.type, address, true);
  return issue_by_handler(to, among, operation);
}

Status Space::issue_by_handler(Target& to, Outstanding& among, const DataOperation& operation) {
  const std::size_t extent = traits(operation.type).extent;
  DataOperation part = operation;
  for (std::size_t done = 0; done < operation.count; done += part.count) {
    const auto fragment = [&](auto* buffer) { return buffer != nullptr ? buffer + done * extent : nullptr; };
    part.offset = operation.offset + done * extent;
    part.count = std::min(operation.count - done, OperationList::kMostInOne / extent);
    part.origin = fragment(static_cast<const std::byte*>(operation.origin));
    part.fetched = fragment(static_cast<std::byte*>(operation.fetched));
    auto list = std::make_unique<OperationList>();
    list->add(part);
    if (Status status = send_list(to, among.requests, std::move(list)); !status) return status;
  }
  return {};
}

Status Space::send_behind_coalesced(Target& to, Outstanding* own, std::unique_ptr<OperationList> list) {
  Status before = issue_coalesced(to);
  Status sent = send_list(to, own != nullptr ? own->requests : to.outstanding->requests, std::move(list));
  return before ? std::move(sent) : std::move(before);
}

Status Space::send_list(Target& to, Pending& among, std::unique_ptr<OperationList> list) {
  if (Status status = acquire_deferred_lock_first(*to.outstanding); !status) return status;
  // An earlier error is returned, but the list is sent all the same: its operations were accepted.
  Status before;
  if (list->has_atomics()) before = wait_for(to.outstanding->atomics);
  for (Waiter waiter(process_, wake_event()); to.outstanding->requests.count() >= kMostLists;) waiter.pause();
  Status issued = fabric().execute(among, handler_of(to), std::move(list));
  return before ? std::move(issued) : std::move(before);
}

Status Space::complete(Target& to) {
  if (to.outstanding == nullptr) return {};
  AllOutstanding& all = *to.outstanding;
  Status first;
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  keep(issue_before_flush(to));
  for (Pending* pending : {&all.writes, &all.reads, &all.atomics, &all.requests}) {
    keep(wait_for(*pending));
  }
  const std::scoped_lock held(coalesced_mutex_);
  all.release_expected = false;
  std::erase_if(all.abandoned, [&](const std::unique_ptr<Outstanding>& own) {
    const bool done = own->done();
    if (done) keep(own->take_error());
    return done;
  });
  return first;
}

Status Space::order_before_release(int rank) {
  Target& to = target(rank);
  if (to.outstanding == nullptr) return {};  // inside the node nothing is outstanding
  // A handler that finds memory detached would not execute the release.
  if (regions_ != nullptr) return complete(to);
  AllOutstanding& all = *to.outstanding;
  Status first;
  const auto keep = [&](Status status) {
    if (!status && first) first = std::move(status);
  };
  if (control_by_nic_) {
    // The adapter executes its atomics behind all earlier operations of the connection, but not behind requests,
    // which the handler executes.
    keep(issue_coalesced(to));
    keep(wait_for(all.requests));
    return first;
  }
  // The release is a message to the handler, together with the coalesced operations.
  if (!fabric().orders_messages_behind_writes()) keep(wait_for(all.writes));
  keep(wait_for(all.reads));
  keep(wait_for(all.atomics));
  return first;
}

Status Space::control_behind_coalesced(Target& to, Pending& pending, const ControlStep& step, std::uint64_t* fetched) {
  AllOutstanding& all = *to.outstanding;
  // Operations behind a deferred lock stay coalesced.
  if (all.deferred) [[unlikely]]
    return fabric().execute_and_control(pending, handler_of(to), nullptr, step, fetched);
  Coalesced taken = take_coalesced(all, true);
  if (!taken.empty()) taken.make_list();
  Status status = fabric().execute_and_control(pending, handler_of(to), std::move(taken.list), step, fetched);
  coalesced_sent(all, std::move(taken));
  return status;
}

Status Space::control(ControlCall call, int rank, std::uint32_t word, Pending& pending, const std::uint64_t* operand,
                      const std::uint64_t* compare, std::uint64_t* fetched) {
  Target& to = target(rank);
  process_.statistics().add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  const ControlStep step{call, {}, word, *operand, *compare};
  if (control_by_nic_)
    return fabric().control(pending, {to.peer, to.control_key, word}, call, operand, compare, fetched);
  // Only a fetch-add may be a release; other steps do not carry coalesced operations along.
  if (call == ControlCall::kFetchAdd) return control_behind_coalesced(to, pending, step, fetched);
  return fabric().execute_and_control(pending, handler_of(to), nullptr, step, fetched);
}

}  // namespace farside

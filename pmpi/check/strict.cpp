// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/check/strict.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "transport/base/waiter.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/process.hpp"
#include "transport/space/regions.hpp"

namespace farside::pmpi {
namespace {

using epochs::AccessLog;
using epochs::ByteRange;
using epochs::LocalUse;
using epochs::RunBuilder;
using epochs::SharedLog;
using epochs::StridedRun;

// What completes one operation of this rank before the next one in this kind of epoch.
const char* how_to_complete(SharedLog::Epoch epoch) {
  switch (epoch) {
    case SharedLog::Epoch::kFence: return "put an MPI_Win_fence between the two";
    case SharedLog::Epoch::kStarted: return "issue them in two epochs";
    case SharedLog::Epoch::kPassive: return "flush between the two";
  }
  return "";
}

Outcome conflict_at_target(const AccessLog::Conflict& with, SharedLog::Epoch epoch) {
  return Fault{
      MPI_ERR_RMA_CONFLICT,
      fmt::format("bytes {} to {} of rank {}'s window are in use by {} (operation {} of this rank on this "
                  "window), which is not complete; {}, or let both accumulate with one type (MPI 4.0 section "
                  "12.7)",
                  with.range.first, with.range.last, with.target, with.name, with.number, how_to_complete(epoch))};
}

Outcome conflict_in_memory(const AccessLog::Conflict& with, SharedLog::Epoch epoch) {
  return Fault{MPI_ERR_RMA_CONFLICT,
               fmt::format("{} bytes of the local buffer, at {:#x}, are in use by {} towards rank {} (operation {} of "
                           "this rank on this window), which is not complete; {}{}, or use another buffer (MPI 4.0 "
                           "section 12.7)",
                           with.range.last - with.range.first, with.range.first, with.name, with.target, with.number,
                           with.requested ? "complete its request or " : "", how_to_complete(epoch))};
}

const char* how_to_order(SharedLog::Epoch epoch) {
  switch (epoch) {
    case SharedLog::Epoch::kFence: return "put an MPI_Win_fence between the two";
    case SharedLog::Epoch::kStarted: return "let the target post for one after the other";
    case SharedLog::Epoch::kPassive:
      return "lock exclusively, or complete the one and then tell the other by a message or barrier";
  }
  return "";
}

Outcome conflict_of_ranks(const SharedLog::Found& with, int where, bool own_buffer) {
  return Fault{
      MPI_ERR_RMA_CONFLICT,
      fmt::format("bytes {} to {} of rank {}'s window{} are in use by {}{} of rank {} (its operation {} on this "
                  "window), which is not complete; {}, or let both accumulate with one type (MPI 4.0 section "
                  "12.7)",
                  with.range.first, with.range.last, where, own_buffer ? ", in which the local buffer lies," : "",
                  with.local ? "the local buffer of " : "", SharedLog::name(with.call), with.origin, with.number,
                  how_to_order(with.epoch))};
}

// Returns a hash of the blocks of `runs`, read by read(place, to, bytes) -> bool; 0 if a read fails. Of more than
// kMostBytes or kMostBlocks only the first are hashed.
template <class Read>
std::uint64_t hash_of(std::span<const StridedRun> runs, Read&& read) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
  constexpr std::uint64_t kMostBlocks = 256;
  std::uint64_t hash = 1;
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  std::vector<std::byte> block;
  for (const StridedRun& run : runs) {
    for (std::uint64_t i = 0; i < run.count; ++i) {
      block.resize(std::min(run.bytes, kMostBytes - bytes));
      bytes += block.size();
      if (block.empty() || ++blocks > kMostBlocks) return hash;
      if (!read(run.block(i).first, block.data(), block.size())) return 0;
      hash = SharedLog::hash(hash, block.data(), block.size());
    }
  }
  return hash;
}

// Returns the hash of this process's own memory at runs of addresses; 0 if the memory has been freed:
// process_vm_readv(2) on this process itself reports unmapped memory as an error, not as a signal.
std::uint64_t hash_of_memory(std::span<const StridedRun> runs) {
  return hash_of(runs, [](std::uint64_t address, std::byte* to, std::size_t bytes) {
    return read_process_memory(getpid(), address, to, bytes).ok();
  });
}

// Adds the ranges of bytes of a local buffer of an operation, and of its target.
void add_places(const LocalBuffer& local, const Datatype& type, const Operation& operation, RunBuilder& here,
                RunBuilder* there) {
  ByteFragments fragments(*type.layout, static_cast<std::size_t>(local.count), *operation.target_type->layout,
                          static_cast<std::size_t>(operation.target.count));
  for (Fragment fragment; fragments.next(fragment);) {
    const auto at = static_cast<std::uint64_t>(reinterpret_cast<std::intptr_t>(local.address) + fragment.origin_offset);
    here.add({at, at + fragment.count});
    const auto to = static_cast<std::uint64_t>(operation.at + fragment.target_offset);
    if (there != nullptr) there->add({to, to + fragment.count});
  }
}

SharedLog::Call call_of(const Operation& operation) {
  using Call = SharedLog::Call;
  static_assert(static_cast<int>(Call::kGetAccumulate) == static_cast<int>(Counted::kFetch) &&
                static_cast<int>(Call::kCompareAndSwap) == static_cast<int>(Counted::kCompareAndSwap));
  return static_cast<Call>(operation.call);
}

epochs::Use use_of(const Operation& operation) {
  if (operation.call == Counted::kPut) return epochs::Use::kPut;
  if (operation.call == Counted::kGet) return epochs::Use::kGet;
  return operation.reads_origin ? epochs::Use::kAccumulate : epochs::Use::kFetch;
}

// Like SharedLog::name, but for an operation of this rank, which may have a request.
const char* name_of(const Operation& operation) {
  if (operation.target.watched == nullptr) return SharedLog::name(call_of(operation));
  switch (operation.call) {
    case Counted::kPut: return "MPI_Rput";
    case Counted::kGet: return "MPI_Rget";
    case Counted::kAccumulate: return "MPI_Raccumulate";
    default: return "MPI_Rget_accumulate";
  }
}

// Whether the call returns data, which proves that the operation has taken effect at the target.
bool is_answered(const Operation& operation) { return operation.call == Counted::kGet || operation.fetches(); }

template <class Each>
void each_block(const RunBuilder& places, Each&& each) {
  for (const StridedRun& run : places.runs()) {
    for (std::uint64_t i = 0; i < run.count; ++i) each(run.block(i));
  }
}

}  // namespace

Strict::Strict(Space& space, std::unique_ptr<Space> logs)
    : space_(space),
      log_space_(std::move(logs)),
      shared_(log_space_, space.rank(), space.ranks(), SharedLog::capacity_for(space.ranks())) {}

Strict::OneThread::OneThread(Strict& strict) : strict_(strict) {
  Waiter waiter(Process::instance(), strict.space_.words().wake_event());
  while (strict.busy_.exchange(true, std::memory_order_acquire)) waiter.pause();
}

Outcome Strict::begin(const Operation& operation, Epoch epoch, Places& places) {
  const bool gets = operation.call == Counted::kGet, fetches = operation.fetches();
  if (gets) add_places(operation.origin, *operation.origin_type, operation, places.written, &places.target);
  if (fetches) add_places(operation.result, *operation.result_type, operation, places.written, &places.target);
  if (operation.reads_origin) {
    add_places(operation.origin, *operation.origin_type, operation, places.read, fetches ? nullptr : &places.target);
  }
  std::uint64_t* const request = operation.target.watched;
  log_.begin({name_of(operation), operation.target.rank, use_of(operation), static_cast<int>(operation.element),
              is_answered(operation), request != nullptr, operation.notifies});
  ++number_;
  if (request != nullptr) *request = number_;
  if (Outcome o = look(epoch, places); !o) return o;
  if (Outcome o = check_other_ranks(operation, epoch, places); !o) return o;
  each_block(places.target, [&](ByteRange range) { log_.add_at_target(range); });
  each_block(places.read, [&](ByteRange range) { log_.add_in_memory(range, LocalUse::kRead); });
  each_block(places.written, [&](ByteRange range) { log_.add_in_memory(range, LocalUse::kWritten); });
  return {};
}

Outcome Strict::look(Epoch epoch, const Places& places) const {
  std::optional<AccessLog::Conflict> found;
  each_block(places.target, [&](ByteRange range) {
    if (!found) found = log_.at_target(range);
  });
  if (found) return conflict_at_target(*found, epoch);
  each_block(places.read, [&](ByteRange range) {
    if (!found) found = log_.in_memory(range, LocalUse::kRead);
  });
  each_block(places.written, [&](ByteRange range) {
    if (!found) found = log_.in_memory(range, LocalUse::kWritten);
  });
  return found ? conflict_in_memory(*found, epoch) : Outcome();
}

std::vector<StridedRun> Strict::in_own_window(const std::vector<StridedRun>& addresses) const {
  // In a dynamic window any address may belong to the window. No operation targets memory that is not attached.
  const auto begin = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(space_.data()));
  const std::uint64_t bytes =
      space_.regions() != nullptr ? Regions::kBytes : space_.extent(space_.rank()).value().bytes;
  std::vector<StridedRun> own;
  for (const StridedRun& run : addresses) {
    if (run.first < begin || run.block(run.count - 1).last > begin + bytes) continue;
    own.push_back(run);
    own.back().first -= begin;
  }
  return own;
}

Outcome Strict::check_other_ranks(const Operation& operation, Epoch epoch, const Places& places) {
  const int target = operation.target.rank;
  SharedLog::Access access{.call = call_of(operation),
                           .use = use_of(operation),
                           .epoch = epoch,
                           .basic_type = static_cast<int>(operation.element),
                           .element_bytes = static_cast<std::uint32_t>(traits(operation.element).extent),
                           .target = target,
                           .number = number_};
  Result<std::optional<SharedLog::Found>> conflict = shared_.add(target, access, places.target.runs());
  if (!conflict) return conflict.status();
  if (conflict.value()) return conflict_of_ranks(*conflict.value(), target, false);
  // Other ranks may access the local buffers as targets, if these lie in this rank's window.
  const int self = space_.rank();
  if (target == self) return {};
  access.local = true;
  access.use = epochs::Use::kPut;
  std::vector<StridedRun> own = in_own_window(places.written.runs());
  if (own.empty()) {
    access.use = epochs::Use::kGet;
    own = in_own_window(places.read.runs());
  }
  if (own.empty()) return {};
  conflict = shared_.add(self, access, own);
  if (!conflict) return conflict.status();
  if (!conflict.value()) return {};
  if (Status gone = shared_.retract(target); !gone) return gone;
  return conflict_of_ranks(*conflict.value(), self, true);
}

Outcome Strict::carried_out(const Operation& operation, Epoch epoch, const Places& places) {
  const int target = operation.target.rank;
  if (Status done = space_.route(target).flush(target); !done) return done;
  for (const auto& [runs, written] : {std::pair{&places.read, false}, {&places.written, true}}) {
    if (runs->runs().empty()) continue;
    if (const std::uint64_t hash = hash_of_memory(runs->runs()); hash != 0)
      buffers_.push_back({name_of(operation), target, number_, written, runs->runs(), hash});
  }
  // It is complete before the notification is sent. Whoever learns of that may access the same bytes.
  if (operation.notifies) {
    log_.notified();
    return shared_.notified(number_);
  }
  // The images reveal stores by the target itself during the epoch. In a passive epoch the target may store as soon as
  // it knows that the access is over, so there is no image.
  if (epoch == Epoch::kPassive) return {};
  std::vector<std::uint64_t> images;
  for (const StridedRun& run : places.target.runs()) {
    images.push_back(hash_of(std::span(&run, 1), [&](std::uint64_t at, std::byte* to, std::size_t bytes) {
      return space_.route(target).get(target, at, to, bytes).ok() && space_.route(target).flush(target).ok();
    }));
  }
  return shared_.executed(target, images);
}

template <class Which>
Outcome Strict::check_buffers(Which&& which, const char* until) {
  const auto changed = std::ranges::find_if(buffers_, [&](const Buffer& buffer) {
    if (!which(buffer)) return false;
    const std::uint64_t now = hash_of_memory(buffer.runs);
    return now != 0 && now != buffer.hash;
  });
  Outcome found;
  if (changed != buffers_.end()) {
    found = Fault{
        MPI_ERR_RMA_CONFLICT,
        fmt::format("the {} buffer of {} towards rank {} (operation {} of this rank on this window) has been "
                    "changed since that call, before {}; leave it alone until then (MPI 4.0 section 12.3)",
                    changed->written ? "result" : "origin", changed->call, changed->target, changed->number, until)};
  }
  std::erase_if(buffers_, which);
  return found;
}

Outcome Strict::check_all_buffers() {
  return check_buffers([](const Buffer&) { return true; });
}

template <class UnderWay, class End>
Outcome Strict::end(UnderWay&& under_way, End&& end) {
  bool delays = false;
  {
    const OneThread one_thread(*this);
    delays = under_way() && space_.ranks() > 1;
  }
  if (delays) delay();
  const OneThread one_thread(*this);
  return end();
}

Outcome Strict::completed(int target, bool locally, bool alone) {
  const auto to = [&](const Buffer& buffer) { return buffer.target == target; };
  return end([&] { return !alone && shared_.under_way(target); },
             [&] {
               locally ? log_.locally_completed(target) : log_.completed(target);
               return first_of(check_buffers(to),
                               locally ? shared_.locally_completed(target) : shared_.completed(target));
             });
}

Outcome Strict::completed_all() {
  return end([&] { return shared_.under_way(); },
             [&] {
               log_.completed_all();
               return first_of(check_all_buffers(), shared_.completed_all());
             });
}

Outcome Strict::request_completed(std::uint64_t number) {
  return end([&] { return shared_.request_under_way(number); },
             [&] {
               log_.request_completed(number);
               return first_of(check_buffers([&](const Buffer& buffer) { return buffer.number == number; },
                                             "its request was complete"),
                               shared_.request_completed(number));
             });
}

Outcome Strict::start_completed() {
  // Updates stay in the target's log until the target's wait; reads are over now.
  return end([&] { return shared_.reads_started(); },
             [&] {
               log_.completed_all();
               return first_of(check_all_buffers(), shared_.start_completed());
             });
}

Outcome Strict::changes_of_own_window(Epoch epoch, const char* until) {
  const auto begin = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(space_.data()));
  Result<std::vector<SharedLog::Found>> changes = shared_.changed(epoch, [&](const StridedRun& run) {
    StridedRun here = run;
    here.first += begin;
    return hash_of_memory(std::span(&here, 1));
  });
  if (!changes) return changes.status();
  if (changes.value().empty()) return {};
  const SharedLog::Found& change = changes.value().front();
  return Fault{
      MPI_ERR_RMA_CONFLICT,
      fmt::format("bytes {} to {} of this rank's window have been stored to by this rank after {} of rank {} (its "
                  "operation {} on this window) had accessed them, and before {}, which completes that; store "
                  "before or after the epoch (MPI 4.0 section 12.7)",
                  change.range.first, change.range.last, SharedLog::name(change.call), change.origin, change.number,
                  until)};
}

Outcome Strict::fence_reached() {
  const OneThread one_thread(*this);
  log_.completed_all();
  Outcome watched = check_all_buffers();
  return first_of(std::move(watched), changes_of_own_window(Epoch::kFence, "this fence"));
}

Outcome Strict::exposure_ended() {
  const OneThread one_thread(*this);
  Outcome changed = changes_of_own_window(Epoch::kStarted, "MPI_Win_wait");
  return first_of(std::move(changed), shared_.exposure_ended());
}

void Strict::delay() {
  const Clock::time_point now = Clock::now(), until = now + kDelay;
  {
    const OneThread one_thread(*this);
    if (delayed_ + kDelay > kAllowance + (now - made_) / kShare) return;
    delayed_ += kDelay;
  }
  for (Waiter waiter(Process::instance(), space_.words().wake_event()); Clock::now() < until;) waiter.pause();
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/check/strict.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <dlfcn.h>
#include <optional>
#include <span>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "pmpi/call_sites.hpp"
#include "pmpi/library/library.hpp"
#include "pmpi/observe/observation.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/process.hpp"
#include "transport/space/regions.hpp"

namespace farside::pmpi {
namespace {

using epochs::AccessLog;
using epochs::ByteRange;
using epochs::RunBuilder;
using epochs::SharedLog;
using epochs::StridedRun;

// How to complete one operation of this rank before the next one, by SharedLog::Epoch.
constexpr const char* kComplete[] = {"put an MPI_Win_fence between the two", "issue them in two epochs",
                                     "flush between the two"};
// The same for those of two ranks.
constexpr const char* kOrder[] = {
    kComplete[0], "let the target post for one after the other",
    "lock exclusively, or complete the one and then tell the other by a message or barrier"};

std::string called_from(std::uint16_t site) { return "called from " + library().sites->text(site); }

Status conflict_at_target(const AccessLog::Conflict& with, SharedLog::Epoch epoch) {
  return Fault{
      MPI_ERR_RMA_CONFLICT,
      fmt::format("bytes {} to {} of rank {}'s window are in use by {} (operation {} of this rank on this "
                  "window, {}), which is not complete; {}, or let both accumulate with one type (MPI 4.0 section "
                  "12.7)",
                  with.range.first, with.range.last, with.target, with.name, with.number, called_from(with.site),
                  kComplete[static_cast<int>(epoch)])};
}

// `window`: the other operation's.
Status conflict_in_memory(const AccessLog::Conflict& with, SharedLog::Epoch epoch, const char* window) {
  return Fault{MPI_ERR_RMA_CONFLICT,
               fmt::format("{} bytes of the local buffer, at {:#x}, are in use by {} towards rank {} (operation {} of "
                           "this rank on {} window, {}), which is not complete; {}{}, or use another buffer (MPI 4.0 "
                           "section 12.7)",
                           with.range.last - with.range.first, with.range.first, with.name, with.target, with.number,
                           window, called_from(with.site), with.requested ? "complete its request or " : "",
                           kComplete[static_cast<int>(epoch)])};
}

constexpr const char* kOneType = "let both accumulate with one type";
constexpr const char* kOneOp = "let both use one MPI_Op (or MPI_NO_OP), as the info key accumulate_ops says";
constexpr const char* kOneWindow = "access this memory through one window";
constexpr const char* kThis = "this window";
constexpr const char* kOther = "another window to this memory, which numbers bytes and ranks so";

// `window`: the other operation's. `instead`: the remedy that does not order the two.
Status conflict_of_ranks(const SharedLog::Found& with, int where, bool own_buffer, const char* window,
                         const char* instead) {
  return Fault{
      MPI_ERR_RMA_CONFLICT,
      fmt::format("bytes {} to {} of rank {}'s window{} are in use by {}{} of rank {} (its operation {} on {}), "
                  "which is not complete; {}, or {} (MPI 4.0 section 12.7)",
                  with.range.first, with.range.last, where, own_buffer ? ", in which the local buffer lies," : "",
                  with.local ? "the local buffer of " : "", SharedLog::name(with.call), with.origin, with.number,
                  window, kOrder[static_cast<int>(with.epoch)], instead)};
}

// Returns a hash of the blocks of `runs`, read by read(place, to, bytes) -> bool; 0 if a read fails. Of more than
// kMostBytes or kMostBlocks only the first are hashed.
template <class Read>
std::uint64_t hash_of(std::span<const StridedRun> runs, Read&& read) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20, kMostBlocks = 256;
  std::uint64_t hash = 1, blocks = 0, bytes = 0;
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

epochs::Use use_of(const Operation& operation) {
  if (operation.call == Counted::kPut) return epochs::Use::kPut;
  if (operation.call == Counted::kGet) return epochs::Use::kGet;
  return operation.reads_origin ? epochs::Use::kAccumulate : epochs::Use::kFetch;
}

// Like SharedLog::name, but for an operation of this rank, which may have a request.
const char* name_of(const Operation& operation) {
  const Counted call = operation.call;
  if (operation.target.watched == nullptr) return SharedLog::name(call);
  if (call == Counted::kPut || call == Counted::kGet) return call == Counted::kPut ? "MPI_Rput" : "MPI_Rget";
  return call == Counted::kAccumulate ? "MPI_Raccumulate" : "MPI_Rget_accumulate";
}

// SharedLog::Access::reduce_op: of what has an MPI_Op but MPI_NO_OP.
std::uint16_t reduce_op_of(const Operation& operation) {
  const bool has_op = operation.call == Counted::kAccumulate || operation.call == Counted::kFetch;
  return has_op && operation.reads_origin ? static_cast<std::uint16_t>(1 + static_cast<int>(operation.reduce)) : 0;
}

// Whether the call returns data, which proves that the operation has taken effect at the target.
bool is_answered(const Operation& operation) { return operation.call == Counted::kGet || operation.fetches(); }

// Returns the runs that lie in the memory, as offsets there.
std::vector<StridedRun> offsets_in(const SharedLog::Memory& memory, const std::vector<StridedRun>& addresses) {
  std::vector<StridedRun> inside;
  for (const StridedRun& run : addresses) {
    if (run.first < memory.base || run.block(run.count - 1).last > memory.base + memory.bytes) continue;
    inside.push_back(run);
    inside.back().first -= memory.base;
  }
  return inside;
}

template <class Each>
void each_block(const RunBuilder& places, Each&& each) {
  for (const StridedRun& run : places.runs()) {
    for (std::uint64_t i = 0; i < run.count; ++i) each(run.block(i));
  }
}

}  // namespace

Strict::Strict(Space& space, std::unique_ptr<Space> logs, MPI_Group group)
    : space_(space),
      log_space_(std::move(logs)),
      group_(group),
      shared_(log_space_, space.rank(), space.ranks(), SharedLog::capacity_for(space.ranks())) {
  const auto inside = enter();
  library().strict_windows->all.push_back(this);
}

Strict::~Strict() {
  const auto inside = enter();
  std::erase(library().strict_windows->all, this);
  for (const auto& [site, flushes] : flushes_) {
    if (flushes.completed_any || flushes.other < 0 || !Log::is_new("idle flush at " + std::to_string(site))) continue;
    report(LogLevel::kWarn,
           fmt::format("flushes of rank {} have completed nothing: no operation towards it was under way, but one "
                       "towards rank {} was, which such a flush does not complete (MPI 4.0 section 12.5.4); {}",
                       flushes.target, flushes.other, called_from(site)));
  }
}

std::unique_lock<StrictWindows> Strict::enter() { return std::unique_lock(*library().strict_windows); }

void StrictWindows::lock() {
  Waiter waiter(Process::instance(), Process::instance().own_wake_event());
  while (busy.exchange(true, std::memory_order_acquire)) waiter.pause();
  watch.disarm();
  const std::span<const PageWatch::Hit> hits = watch.take();
  (void)without_bad_alloc([&] {
    for (const PageWatch::Hit& hit : hits) {
      for (Strict* each : all) each->accessed(hit);
    }
    return Status();
  });
}

void Strict::call_ends() {
  const auto inside = enter();
  StrictWindows& windows = *library().strict_windows;
  std::array<PageWatch::Range, PageWatch::kRanges> results{};  // the last first
  std::size_t used = 0;
  for (const Strict* each : windows.all) {
    for (auto buffer = each->buffers_.rbegin(); buffer != each->buffers_.rend(); ++buffer) {
      if (!buffer->written) continue;
      for (const StridedRun& run : buffer->runs) {
        if (used < results.size()) results[used++] = {run.first, run.first + run.bytes};
      }
    }
  }
  windows.watch.arm(std::span(results).first(used));
}

void Strict::accessed(const PageWatch::Hit& hit) {
  // A string function of the C library loads whole vectors, so also bytes beside those of its argument.
  Dl_info info{};
  const bool known = dladdr(reinterpret_cast<void*>(static_cast<std::uintptr_t>(hit.instruction)), &info) != 0;
  if (known && hit.address % 16 == 0 && std::string_view(info.dli_fname).find("/libc.so") != std::string_view::npos)
    return;
  for (Buffer& buffer : buffers_) {
    const bool within = std::ranges::any_of(buffer.runs, [&](const StridedRun& run) {
      return run.first <= hit.address && hit.address < run.first + run.bytes;
    });
    if (!within || !buffer.written || buffer.used_at != 0) continue;
    buffer.used_at = library().sites->find(hit.instruction);
    buffer.stored = hit.store;
  }
}

SharedLog::Memory Strict::memory_of(Space& space) {
  // In a dynamic window any address may belong to the window. No operation targets memory that is not attached.
  return {static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(space.data())),
          space.regions() != nullptr ? Regions::kBytes : space.extent(space.rank()).value().bytes};
}

int Strict::rank_in(const Strict& other, int rank) const {
  int there = -1;
  const int code = runtime().Group_translate_ranks(group_, 1, &rank, other.group_, &there);
  return code == MPI_SUCCESS && there != MPI_UNDEFINED ? there : -1;
}

Status Strict::begin(const Operation& operation, Epoch epoch, Places& places) {
  const bool gets = operation.call == Counted::kGet, fetches = operation.fetches();
  if (gets) add_places(operation.origin, *operation.origin_type, operation, places.written, &places.target);
  if (fetches) add_places(operation.result, *operation.result_type, operation, places.written, &places.target);
  if (operation.reads_origin) {
    add_places(operation.origin, *operation.origin_type, operation, places.read, fetches ? nullptr : &places.target);
  }
  std::uint64_t* const request = operation.target.watched;
  site_ = library().sites->find_here();
  log_.begin({name_of(operation), operation.target.rank, use_of(operation), static_cast<int>(operation.element),
              is_answered(operation), request != nullptr, operation.notifies, site_});
  ++number_;
  if (request != nullptr) *request = number_;
  if (Status o = look(epoch, places); !o) return o;
  if (Status o = check_other_ranks(operation, epoch, places); !o) return o;
  if (epoch != Epoch::kPassive && !operation.notifies) places.before = hashes_at_target(operation.target.rank, places);
  each_block(places.target, [&](ByteRange range) { log_.add_at_target(range); });
  each_block(places.read, [&](ByteRange range) { log_.add_in_memory(range, epochs::Use::kGet); });
  each_block(places.written, [&](ByteRange range) { log_.add_in_memory(range, epochs::Use::kPut); });
  return {};
}

Status Strict::look(Epoch epoch, const Places& places) const {
  std::optional<AccessLog::Conflict> found;
  each_block(places.target, [&](ByteRange range) {
    if (!found) found = log_.at_target(range);
  });
  if (found) return conflict_at_target(*found, epoch);
  for (const Strict* each : library().strict_windows->all) {
    each_block(places.read, [&](ByteRange range) {
      if (!found) found = each->log_.in_memory(range, epochs::Use::kGet);
    });
    each_block(places.written, [&](ByteRange range) {
      if (!found) found = each->log_.in_memory(range, epochs::Use::kPut);
    });
    if (found) return conflict_in_memory(*found, epoch, each == this ? "this" : "another");
  }
  return {};
}

Status Strict::check_other_ranks(const Operation& operation, Epoch epoch, const Places& places) {
  const int target = operation.target.rank;
  SharedLog::Access access{.call = operation.call,
                           .use = use_of(operation),
                           .epoch = epoch,
                           .basic_type = static_cast<int>(operation.element),
                           .element_bytes = static_cast<std::uint16_t>(traits(operation.element).extent),
                           .reduce_op = reduce_op_of(operation),
                           .target = target,
                           .number = number_};
  Result<std::optional<SharedLog::Found>> conflict = shared_.add(target, access, places.target.runs());
  if (!conflict) return conflict.status();
  if (conflict.value()) {
    const bool only_ops_differ = conflict.value()->only_ops_differ;
    return conflict_of_ranks(*conflict.value(), target, false, kThis, only_ops_differ ? kOneOp : kOneType);
  }
  // Other ranks may access the local buffers as targets, if these lie in this rank's window.
  const int self = space_.rank();
  access.local = true;
  access.use = epochs::Use::kPut;
  std::vector<StridedRun> own;
  if (target != self) own = offsets_in(memory_of(space_), places.written.runs());
  if (target != self && own.empty()) {
    access.use = epochs::Use::kGet;
    own = offsets_in(memory_of(space_), places.read.runs());
  }
  Status found;
  if (!own.empty()) {
    conflict = shared_.add(self, access, own);
    if (!conflict) return conflict.status();
    if (conflict.value()) {
      found = conflict_of_ranks(*conflict.value(), self, true, kThis, kOneType);
      own.clear();
    }
  }
  if (found) found = check_other_windows(operation, places);
  if (found) return {};
  Status gone = shared_.retract(target);
  if (gone && !own.empty()) gone = shared_.retract(self);
  return gone ? std::move(found) : Status(gone);
}

Status Strict::check_other_windows(const Operation& operation, const Places& places) {
  const int target = operation.target.rank, self = space_.rank();
  if (library().strict_windows->all.size() == 1) return {};
  Result<SharedLog::Memory> memory = shared_.memory_of(target);
  if (!memory) return memory.status();
  std::vector<StridedRun> addresses = places.target.runs();
  for (StridedRun& run : addresses) run.first += memory.value().base;
  for (Strict* other : library().strict_windows->all) {
    if (other == this) continue;
    Status found = memory.value().bytes == 0
                       ? Status()
                       : check_other_window(*other, target, {.use = use_of(operation)}, addresses);
    if (found) found = check_other_window(*other, self, {.use = epochs::Use::kGet, .local = true}, places.read.runs());
    if (found)
      found = check_other_window(*other, self, {.use = epochs::Use::kPut, .local = true}, places.written.runs());
    if (!found) return found;
  }
  return {};
}

Status Strict::check_other_window(Strict& other, int rank, const SharedLog::Access& access,
                                  std::vector<StridedRun> addresses) {
  const int there = addresses.empty() ? -1 : rank_in(other, rank);
  if (there < 0) return {};
  const Result<SharedLog::Memory> memory = other.shared_.memory_of(there);
  if (!memory) return memory.status();
  addresses = offsets_in(memory.value(), addresses);
  if (addresses.empty()) return {};
  Result<std::optional<SharedLog::Found>> found = other.shared_.look_from_outside(there, access, addresses);
  if (!found) return found.status();
  if (!found.value()) return {};
  return conflict_of_ranks(*found.value(), there, access.local, kOther, kOneWindow);
}

std::vector<std::uint64_t> Strict::hashes_at_target(int target, const Places& places) const {
  std::vector<std::uint64_t> hashes;
  for (const StridedRun& run : places.target.runs()) {
    hashes.push_back(hash_of(std::span(&run, 1), [&](std::uint64_t at, std::byte* to, std::size_t bytes) {
      return space_.route(target).carry_out(target, DataOperation::get(at, to, bytes)).ok() &&
             space_.route(target).flush(target).ok();
    }));
  }
  return hashes;
}

Status Strict::carried_out(const Operation& operation, Epoch epoch, const Places& places) {
  const int target = operation.target.rank;
  if (Status done = space_.route(target).flush(target); !done) return done;
  for (const auto& [runs, written] : {std::pair{&places.read, false}, {&places.written, true}}) {
    if (runs->runs().empty()) continue;
    if (const std::uint64_t hash = hash_of_memory(runs->runs()); hash != 0)
      buffers_.push_back({name_of(operation), target, number_, site_, written, runs->runs(), hash});
  }
  // It is complete before the notification is sent. The notified rank may access the same bytes.
  if (operation.notifies) {
    log_.notified();
    return shared_.notified(number_);
  }
  // The images reveal stores by the target itself during the epoch. In a passive epoch the target may store as soon as
  // it knows that the access is over, so there is no image.
  if (epoch == Epoch::kPassive) return {};
  std::vector<SharedLog::Images> images;
  for (const std::uint64_t after : hashes_at_target(target, places))
    images.push_back({places.before[images.size()], after});
  return shared_.executed(target, images);
}

template <class Which>
Status Strict::check_buffers(Which&& which, const char* until) {
  const auto changed = std::ranges::find_if(buffers_, [&](const Buffer& buffer) {
    if (!which(buffer)) return false;
    if (buffer.used_at != 0) return true;
    const std::uint64_t now = hash_of_memory(buffer.runs);
    return now != 0 && now != buffer.hash;
  });
  Status found;
  if (changed != buffers_.end()) {
    found =
        Fault{MPI_ERR_RMA_CONFLICT,
              fmt::format("the {} buffer of {} towards rank {} (operation {} of this rank on this window, {}) has been "
                          "{}{} since that call, before {}; leave it alone until then (MPI 4.0 section 12.3)",
                          changed->written ? "result" : "origin", changed->call, changed->target, changed->number,
                          called_from(changed->site), changed->used_at == 0 || changed->stored ? "changed" : "loaded",
                          changed->used_at != 0 ? " in " + library().sites->text(changed->used_at) : "", until)};
  }
  std::erase_if(buffers_, which);
  return found;
}

Status Strict::check_all_buffers() {
  return check_buffers([](const Buffer&) { return true; });
}

void Strict::flushes(int target) {
  const auto inside = enter();
  const std::optional<int> under_way = log_.under_way(target);
  if (!under_way) return;
  Flushes& here = flushes_[library().sites->find_here()];
  here = {here.completed_any || *under_way == target, target, *under_way};
}

template <class UnderWay, class End>
Status Strict::end(UnderWay&& under_way, End&& end) {
  const auto delays = [&] {
    const auto inside = enter();
    return under_way() && space_.ranks() > 1;
  };
  if (delays()) delay();
  const auto inside = enter();
  return end();
}

Status Strict::completed(int target, bool locally, bool alone) {
  const auto to = [&](const Buffer& buffer) { return buffer.target == target; };
  return end([&] { return !alone && shared_.under_way(target); },
             [&] {
               locally ? log_.locally_completed(target) : log_.completed(target);
               return first_of(check_buffers(to),
                               locally ? shared_.locally_completed(target) : shared_.completed(target));
             });
}

Status Strict::completed_all() {
  return end([&] { return shared_.under_way(); },
             [&] {
               log_.completed_all();
               return first_of(check_all_buffers(), shared_.completed_all());
             });
}

Status Strict::request_completed(std::uint64_t number) {
  return end([&] { return shared_.request_under_way(number); },
             [&] {
               log_.request_completed(number);
               return first_of(check_buffers([&](const Buffer& buffer) { return buffer.number == number; },
                                             "its request was complete"),
                               shared_.request_completed(number));
             });
}

Status Strict::start_completed() {
  // Updates stay in the target's log until the target's wait; reads are over now.
  return end([&] { return shared_.reads_started(); },
             [&] {
               log_.completed_all();
               return first_of(check_all_buffers(), shared_.start_completed());
             });
}

Status Strict::keep_image(std::optional<Epoch> epoch) {
  const auto inside = enter();
  image_epoch_ = epoch.value_or(image_epoch_);
  image_.clear();
  // Other ranks may change shared memory, or memory of another window, without a call by this rank.
  const SharedLog::Memory own = memory_of(space_);
  const bool ours_alone = std::ranges::none_of(library().strict_windows->all, [&](const Strict* other) {
    const SharedLog::Memory there = memory_of(other->space_);
    return other != this && there.base < own.base + own.bytes && own.base < there.base + there.bytes;
  });
  if (space_.regions() != nullptr || space_.shared() || !ours_alone) return {};
  image_.resize(std::min<std::uint64_t>(own.bytes, kImageBytes));
  if (!read_process_memory(getpid(), own.base, image_.data(), image_.size())) image_.clear();
  return shared_.image_kept(image_epoch_);
}

Status Strict::changes_of_own_window(Epoch epoch, const char* until) {
  const std::uint64_t begin = memory_of(space_).base;
  Result<std::vector<SharedLog::Found>> later = shared_.changed_after(epoch, [&](const StridedRun& run) {
    StridedRun here = run;
    here.first += begin;
    return hash_of_memory(std::span(&here, 1));
  });
  if (!later) return later.status();
  Result<std::vector<SharedLog::Found>> earlier = shared_.changed_before(epoch, [&](const StridedRun& run) {
    return hash_of(std::span(&run, 1), [&](std::uint64_t at, std::byte* to, std::size_t bytes) {
      if (epoch != image_epoch_ || at + bytes > image_.size()) return false;
      std::memcpy(to, image_.data() + at, bytes);
      return true;
    });
  });
  if (!earlier) return earlier.status();
  const bool is_later = !later.value().empty();
  if (!is_later && earlier.value().empty()) return {};
  const SharedLog::Found& change = is_later ? later.value().front() : earlier.value().front();
  return Fault{MPI_ERR_RMA_CONFLICT,
               fmt::format("bytes {} to {} of this rank's window have been stored to by this rank {} {} of rank {} "
                           "(its operation {} on this window) {} (MPI 4.0 section 12.7)",
                           change.range.first, change.range.last, is_later ? "after" : "before",
                           SharedLog::name(change.call), change.origin, change.number,
                           is_later ? fmt::format("had accessed them, and before {}, which completes that; store "
                                                  "before or after the epoch",
                                                  until)
                                    : "accessed them, in the same epoch; store before the epoch, or call MPI_Win_sync "
                                      "and then tell the other by a message or barrier")};
}

Status Strict::fence_reached() {
  const auto inside = enter();
  log_.completed_all();
  return check_all_buffers();
}

Status Strict::fence_passed() {
  auto inside = enter();
  Status changed = changes_of_own_window(Epoch::kFence, "this fence");
  shared_.fence_passed();
  inside.unlock();
  return first_of(std::move(changed), keep_image(Epoch::kFence));
}

Status Strict::exposure_ended() {
  const auto inside = enter();
  Status changed = changes_of_own_window(Epoch::kStarted, "MPI_Win_wait");
  return first_of(std::move(changed), shared_.exposure_ended());
}

// With 5 ms, a few time slices, many conflicts among three ranks on two overloaded cores were missed.
void Strict::delay() {
  // The total delay of a window is limited to kAllowance and one part in kShare of the window's lifetime.
  constexpr std::chrono::milliseconds kDelay{20}, kAllowance{100};
  constexpr int kShare = 20;
  const Clock::time_point now = Clock::now(), until = now + kDelay;
  auto inside = enter();
  if (delayed_ + kDelay > kAllowance + (now - made_) / kShare) return;
  delayed_ += kDelay;
  inside.unlock();
  for (Waiter waiter(Process::instance(), space_.words().wake_event()); Clock::now() < until;) waiter.pause();
}

}  // namespace farside::pmpi

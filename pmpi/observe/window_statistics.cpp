// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/window_statistics.hpp"

#include <algorithm>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

constexpr std::size_t kMostSummaries = 4096;

void add_each(auto& to, const auto& more) {
  if constexpr (requires { to.add(more); }) {
    to.add(more);
  } else if constexpr (requires { to.size(); }) {
    for (std::size_t i = 0; i < to.size(); ++i) add_each(to[i], more[i]);
  } else {
    to += more;
  }
}

}  // namespace

std::string names_of_routes(const Space& space, const char* between) {
  std::string names;
  for (std::size_t route = 0; route < kRouteKinds; ++route) {
    if (space.uses(static_cast<RouteKind>(route)))
      names += fmt::format("{}{}", names.empty() ? "" : between, kRoutes[route].name);
  }
  return names;
}

void StatisticsSums::Sum::add(const Sum& other) {
  count += other.count;
  bytes += other.bytes;
  time += other.time;
  waited += other.waited;
  longest = std::max(longest, other.longest);
}

void StatisticsSums::add(const StatisticsSums& other) {
  windows += other.windows;
  flushes += other.flushes;
  flushes_all += other.flushes_all;
  slow_operations.add(other.slow_operations);
  add_each(epochs, other.epochs);
  add_each(waits, other.waits);
  add_each(operations, other.operations);
  add_each(slow, other.slow);
  add_each(sizes, other.sizes);
  add_each(slow_sizes, other.slow_sizes);
  for (const auto& [rank, more] : other.targets) targets[rank].add(more);
  for (const std::string& name : other.names) {
    if (names.size() < kMostNames) names.insert(name);
  }
}

std::unique_ptr<WindowStatistics> WindowStatistics::open(Space& space, MPI_Group group, TraceFlavor flavor,
                                                         std::uint64_t id, bool threaded) {
  if (!Process::instance().statistics().enabled() && Trace::active() == nullptr) return nullptr;
  return std::unique_ptr<WindowStatistics>(new WindowStatistics(space, group, flavor, id, threaded));
}

WindowStatistics::WindowStatistics(Space& space, MPI_Group group, TraceFlavor flavor, std::uint64_t id, bool threaded)
    : space_(space),
      counts_(space.count_by_target(threaded)),
      trace_(Trace::active()),
      kind_(fmt::format("{} {}", kFlavorNames[static_cast<std::size_t>(flavor)], names_of_routes(space, "+"))),
      process_ranks_(library().resources->process_ranks_of(group, space.ranks())) {
  sums_.windows = 1;
  const auto rank = static_cast<std::uint64_t>(space.rank()), ranks = static_cast<std::uint64_t>(space.ranks());
  traced_.record = {.kind = TraceKind::kWindow,
                    .detail = static_cast<std::uint8_t>(flavor),
                    .begin = ticks(),
                    .granted = id,
                    .closing = rank | ranks << 32};
  const std::uint32_t number = library().statistics->enter(*this);
  const std::scoped_lock held(mutex_);  // others may read it now
  traced_.record.window = number;
}

WindowStatistics::~WindowStatistics() {
  {
    const std::scoped_lock held(mutex_);
    const Ticks end = traced_.record.end = ticks();
    site_ = 0;
    // The epoch of the last fence, which no other call has ended.
    for (const Open& epoch : open_) record(epoch, end, end);
  }
  library().statistics->leave(*this);
}

Ticks WindowStatistics::waited(WaitKind kind, int target, const Moment& begun) {
  const Ticks waited = this_thread.waited - begun.waited;
  site_ = library().sites->here(kind, waited);
  if (waited == 0) return 0;
  sums_.waits[static_cast<std::size_t>(kind)].add({.count = 1, .waited = waited, .longest = waited});
  if (target >= 0) target_sums(sums_, target).waited += waited;
  return waited;
}

void WindowStatistics::opened(EpochKind kind, int target, WaitKind waits, const Moment& begun) {
  const std::scoped_lock held(mutex_);
  const Ticks waited = this->waited(waits, target, begun);
  sums_.epochs[static_cast<std::size_t>(kind)].add({.count = 1, .waited = waited});
  if (trace_ == nullptr) return;
  // An epoch whose call waited was granted at the end of the wait.
  open_.push_back({kind, target, begun.at, waited != 0 ? this_thread.last_wait_end : begun.at, site_});
}

void WindowStatistics::closed(EpochKind kind, int target, WaitKind waits, const Moment& begun) {
  const std::scoped_lock held(mutex_);
  const Ticks waited = this->waited(waits, target, begun);
  sums_.epochs[static_cast<std::size_t>(kind)].waited += waited;
  if (trace_ == nullptr) return;
  // The epoch that was opened last is mostly the first to be closed.
  const auto found = std::find_if(open_.rbegin(), open_.rend(),
                                  [&](const Open& open) { return open.kind == kind && open.target == target; });
  if (found == open_.rend()) return;
  const Open epoch = *found;
  open_.erase(std::next(found).base());
  const Ticks end = ticks();
  record(epoch, waited != 0 ? std::max(end - waited, epoch.granted) : end, end);
}

void WindowStatistics::record(const Open& epoch, Ticks closing, Ticks end) {
  sums_.epochs[static_cast<std::size_t>(epoch.kind)].time += end - epoch.begin;
  const bool lock = epoch.kind == EpochKind::kLockShared || epoch.kind == EpochKind::kLockExclusive;
  drained_.clear();
  if (epoch.kind != EpochKind::kPost) drain(lock ? epoch.target : -1);
  // The epoch's record includes the first counts.
  if (drained_.empty()) drained_.emplace_back();
  TraceRecord& first = drained_.front();
  first = {.detail = static_cast<std::uint8_t>(epoch.kind),
           .what = first.what,
           .route = first.route,
           .window = traced_.record.window,
           .target = epoch.target,
           .site = epoch.site,
           .begin = epoch.begin,
           .granted = epoch.granted,
           .closing = closing,
           .count = first.count,
           .bytes = first.bytes};
  for (TraceRecord& each : drained_) {
    each.end = end;
    trace_->epochs().add(each);
  }
}

void WindowStatistics::record(TraceRing& to, TraceRecord call, const Moment& begun) const {
  call.window = traced_.record.window;
  call.site = site_;
  call.begin = begun.at;
  call.end = ticks();
  to.add(call);
}

void WindowStatistics::count(StatisticsSums& sums, int target, Counted what, std::uint64_t count,
                             std::uint64_t bytes) const {
  const StatisticsSums::Sum done{.count = count, .bytes = bytes};
  sums.operations[static_cast<std::size_t>(space_.kind(target))][static_cast<std::size_t>(what)].add(done);
  target_sums(sums, target).add(done);
}

// Adds the operations since the last call to the sums and to drained_.
void WindowStatistics::drain(int only) {
  counts_.drain(only, [this](int target, Counted what, std::uint64_t count, std::uint64_t bytes) {
    this->count(sums_, target, what, count, bytes);
    const auto kind = static_cast<std::uint8_t>(what), route = static_cast<std::uint8_t>(space_.kind(target));
    auto same = std::ranges::find_if(drained_,
                                     [&](const TraceRecord& each) { return each.what == kind && each.route == route; });
    if (same == drained_.end()) {
      same = drained_.insert(
          same, {.kind = TraceKind::kCounts, .what = kind, .route = route, .window = traced_.record.window});
    }
    same->count += count;
    same->bytes += bytes;
  });
}

void WindowStatistics::fenced(bool no_succeed, const Moment& begun) {
  const std::scoped_lock held(mutex_);
  const Ticks waited = this->waited(WaitKind::kFence, -1, begun);
  sums_.epochs[static_cast<std::size_t>(EpochKind::kFence)].add({.count = 1, .waited = waited});
  if (trace_ == nullptr) return;
  const Ticks end = ticks();
  // Before the first fence there is no epoch, only the fence's own barrier.
  Open ends{EpochKind::kFence, -1, begun.at, begun.at, site_};
  if (const auto open = std::ranges::find(open_, EpochKind::kFence, &Open::kind); open != open_.end()) {
    ends = *open;
    open_.erase(open);
  }
  record(ends, begun.at, end);
  if (!no_succeed) open_.push_back({EpochKind::kFence, -1, end, end, site_});
}

void WindowStatistics::flushed(int target, const Moment& begun) {
  const std::scoped_lock held(mutex_);
  ++(target < 0 ? sums_.flushes_all : sums_.flushes);
  if (waited(WaitKind::kFlush, target, begun) == 0 || trace_ == nullptr) return;
  record(trace_->epochs(), {.kind = TraceKind::kFlush, .target = target}, begun);
}

void WindowStatistics::operated(int target, Counted what, std::uint64_t bytes, const Moment& begun) {
  const std::scoped_lock held(mutex_);
  waited(WaitKind::kOperation, -1, begun);
  const StatisticsSums::Sum done{.count = 1, .time = ticks() - begun.at};
  sums_.slow_operations.add(done);
  target_sums(sums_, target).time += done.time;
  sums_.slow_sizes[static_cast<std::size_t>(what)][OperationCounts::size_class(bytes)].add(done);
  if (trace_ == nullptr) return;
  const auto kind = static_cast<std::uint8_t>(what), route = static_cast<std::uint8_t>(space_.kind(target));
  record(trace_->operations(),
         {.kind = TraceKind::kOperation, .what = kind, .route = route, .target = target, .count = 1, .bytes = bytes},
         begun);
}

StatisticsSums WindowStatistics::sums() const {
  const std::scoped_lock held(mutex_);
  StatisticsSums sums = sums_;
  counts_.each([&](int target, Counted what, std::uint64_t count, std::uint64_t bytes) {
    this->count(sums, target, what, count, bytes);
  });
  sums.slow = counts_.slow();
  sums.sizes = counts_.sizes();
  return sums;
}

void AllWindowStatistics::leave(WindowStatistics& window_statistics) {
  const std::scoped_lock held(mutex_);
  std::erase(live_, &window_statistics);
  freed_[window_statistics.kind()].add(window_statistics.sums());
  if (Trace::active() != nullptr && freed_windows_.size() < kMostSummaries)
    freed_windows_.push_back(window_statistics.traced());
}

std::map<std::string, StatisticsSums> AllWindowStatistics::sums() {
  const std::scoped_lock held(mutex_);
  std::map<std::string, StatisticsSums> sums = freed_;
  for (const WindowStatistics* window_statistics : live_)
    sums[window_statistics->kind()].add(window_statistics->sums());
  return sums;
}

std::vector<WindowStatistics::Traced> AllWindowStatistics::traced() const {
  const std::scoped_lock held(mutex_);
  std::vector<WindowStatistics::Traced> windows = freed_windows_;
  for (const WindowStatistics* window_statistics : live_) windows.push_back(window_statistics->traced());
  return windows;
}

}  // namespace farside::pmpi

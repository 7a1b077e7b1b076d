// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/window_statistics.hpp"

#include <algorithm>
#include <utility>

#include "pmpi/library/library.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

constexpr std::size_t kMostSummaries = 4096;
// An epoch with more pairs of target and operation is recorded by operation only.
constexpr std::size_t kMostCounts = 32;

std::string kind_of(const Space& space, TraceFlavor flavor) {
  std::string routes;
  for (std::size_t route = 0; route < kRouteKinds; ++route) {
    if (space.uses(static_cast<RouteKind>(route)))
      routes += fmt::format("{}{}", routes.empty() ? "" : "+", kRoutes[route].name);
  }
  return fmt::format("{} {}", kFlavorNames[static_cast<std::size_t>(flavor)], routes);
}

}  // namespace

void StatisticsSums::add(const StatisticsSums& other) {
  windows += other.windows;
  flushes += other.flushes;
  flushes_all += other.flushes_all;
  slow_operations += other.slow_operations;
  slow_operation_calls += other.slow_operation_calls;
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    epochs[i].count += other.epochs[i].count;
    epochs[i].in_them += other.epochs[i].in_them;
    epochs[i].waited += other.epochs[i].waited;
  }
  for (std::size_t i = 0; i < waits.size(); ++i) {
    waits[i].count += other.waits[i].count;
    waits[i].total += other.waits[i].total;
    waits[i].longest = std::max(waits[i].longest, other.waits[i].longest);
  }
  for (std::size_t route = 0; route < operations.size(); ++route) {
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      operations[route][kind].count += other.operations[route][kind].count;
      operations[route][kind].bytes += other.operations[route][kind].bytes;
    }
  }
  for (std::size_t by = 0; by < slow.size(); ++by) {
    for (std::size_t why = 0; why < slow[by].size(); ++why) slow[by][why] += other.slow[by][why];
  }
  for (const auto& [rank, more] : other.targets) {
    Target& target = targets[rank];
    target.operations.count += more.operations.count;
    target.operations.bytes += more.operations.bytes;
    target.waited += more.waited;
    target.slow_operations += more.slow_operations;
  }
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    for (std::size_t size = 0; size < OperationCounts::kSizes; ++size) {
      sizes[kind][size].count += other.sizes[kind][size].count;
      sizes[kind][size].bytes += other.sizes[kind][size].bytes;
      sized[kind][size].count += other.sized[kind][size].count;
      sized[kind][size].time += other.sized[kind][size].time;
    }
  }
  for (const std::string& name : other.names) {
    if (names.size() < kMostNames) names.insert(name);
  }
}

std::unique_ptr<WindowStatistics> WindowStatistics::open(Space& space, const About& about, bool threaded) {
  if (!Process::instance().statistics().enabled() && Trace::active() == nullptr) return nullptr;
  return std::unique_ptr<WindowStatistics>(new WindowStatistics(space, about, threaded));
}

WindowStatistics::WindowStatistics(Space& space, const About& about, bool threaded)
    : space_(space),
      counts_(space.count_by_target(threaded)),
      trace_(Trace::active()),
      kind_(kind_of(space, about.flavor)),
      process_rank_(about.process_rank) {
  sums_.windows = 1;
  library().statistics->enter(*this);
  if (trace_ == nullptr) return;
  if (threaded) expect_threads();
  TraceRecord window;
  window.kind = TraceKind::kWindow;
  window.detail = static_cast<std::uint8_t>(about.flavor);
  window.begin = now();
  window.granted = about.id;
  window.closing = static_cast<std::uint64_t>(space.rank()) | static_cast<std::uint64_t>(space.ranks()) << 32;
  window_ = library().statistics->add_window(window);
}

void WindowStatistics::expect_threads() {
  if (trace_ == nullptr) return;
  trace_->epochs().expect_threads();
  trace_->operations().expect_threads();
}

WindowStatistics::~WindowStatistics() {
  query_processes(-1);
  if (trace_ != nullptr) {
    const Ticks end = now();
    {
      const std::scoped_lock held(mutex_);
      site_ = 0;
      // The epoch of the last fence, which no other call has ended.
      for (const Open& epoch : open_) record(epoch, end, end);
    }
    library().statistics->window_freed(window_, end);
  }
  complete_targets();
  library().statistics->leave(*this);
}

void WindowStatistics::query_processes(int target) {
  std::vector<int> unknown;
  {
    const std::scoped_lock held(mutex_);
    const auto look = [&](int each) {
      if (!process_ranks_.contains(each)) unknown.push_back(each);
    };
    if (target >= 0) {
      look(target);
    } else {
      counts_.each([&](int counted, Counted, std::uint64_t, std::uint64_t) { look(counted); });
    }
  }
  for (const int each : unknown) {
    const int process = process_rank_ ? process_rank_(each) : -1;
    const std::scoped_lock held(mutex_);
    process_ranks_[each] = process;
  }
}

int WindowStatistics::process_of(int target) const {
  const auto known = process_ranks_.find(target);
  return known != process_ranks_.end() ? known->second : -1;
}

StatisticsSums::Target& WindowStatistics::target_sums(int target) { return sums_.targets[process_of(target)]; }

Ticks WindowStatistics::waited(WaitKind kind, const Moment& begun) {
  const Ticks waited = this_thread.waited - begun.waited;
  site_ = library().sites->here(kind, waited);
  if (waited == 0) return 0;
  StatisticsSums::Waits& waits = sums_.waits[static_cast<std::size_t>(kind)];
  ++waits.count;
  waits.total += waited;
  waits.longest = std::max(waits.longest, waited);
  return waited;
}

void WindowStatistics::opened(EpochKind kind, int target, WaitKind waits, const Moment& begun) {
  if (target >= 0) query_processes(target);
  const std::scoped_lock held(mutex_);
  const Ticks waited = this->waited(waits, begun);
  StatisticsSums::Epochs& sums = sums_.epochs[static_cast<std::size_t>(kind)];
  ++sums.count;
  sums.waited += waited;
  // An epoch whose call waited was granted at the end of the wait.
  if (target >= 0 && waited != 0) target_sums(target).waited += waited;
  if (trace_ == nullptr) return;
  open_.push_back({kind, target, begun.at, waited != 0 ? this_thread.last_wait_end : begun.at, site_});
}

void WindowStatistics::closed(EpochKind kind, int target, WaitKind waits, const Moment& begun) {
  if (target >= 0 || trace_ != nullptr) query_processes(target);
  const std::scoped_lock held(mutex_);
  const Ticks waited = this->waited(waits, begun);
  sums_.epochs[static_cast<std::size_t>(kind)].waited += waited;
  if (target >= 0 && waited != 0) target_sums(target).waited += waited;
  if (trace_ == nullptr) return;
  // The epoch that was opened last is mostly the first to be closed.
  const auto found = std::find_if(open_.rbegin(), open_.rend(),
                                  [&](const Open& open) { return open.kind == kind && open.target == target; });
  if (found == open_.rend()) return;
  const Open epoch = *found;
  open_.erase(std::next(found).base());
  const Ticks end = now();
  record(epoch, waited != 0 ? std::max(end - waited, epoch.granted) : end, end);
}

void WindowStatistics::record(const Open& epoch, Ticks closing, Ticks end) {
  sums_.epochs[static_cast<std::size_t>(epoch.kind)].in_them += end - epoch.begin;
  const bool lock = epoch.kind == EpochKind::kLockShared || epoch.kind == EpochKind::kLockExclusive;
  drained_.clear();
  if (epoch.kind != EpochKind::kPost) drain(lock ? epoch.target : -1);
  TraceRecord record;
  record.kind = TraceKind::kEpoch;
  record.detail = static_cast<std::uint8_t>(epoch.kind);
  record.window = window_;
  record.target = epoch.target;
  record.begin = epoch.begin;
  record.granted = epoch.granted;
  record.closing = closing;
  record.end = end;
  record.site = epoch.site;
  record.end_site = site_;
  // The record of a lock includes its first counts, which have the same target.
  std::size_t next = 0;
  if (lock && !drained_.empty()) {
    record.what = drained_[0].what;
    record.route = drained_[0].route;
    record.count = drained_[0].count;
    record.bytes = drained_[0].bytes;
    next = 1;
  }
  trace_->epochs().add(record);
  for (; next < drained_.size(); ++next) {
    drained_[next].end = end;
    trace_->epochs().add(drained_[next]);
  }
}

// Adds the operations since the last call to the sums and, with a trace, to drained_.
void WindowStatistics::drain(int only) {
  counts_.drain(only, [this](int target, Counted what, std::uint64_t count, std::uint64_t bytes) {
    const RouteKind route = space_.kind(target);
    StatisticsSums::Operations& sums =
        sums_.operations[static_cast<std::size_t>(route)][static_cast<std::size_t>(what)];
    sums.count += count;
    sums.bytes += bytes;
    StatisticsSums::Target& there = target_sums(target);
    there.operations.count += count;
    there.operations.bytes += bytes;
    if (trace_ == nullptr) return;
    TraceRecord record;
    record.kind = TraceKind::kCounts;
    record.what = static_cast<std::uint8_t>(what);
    record.route = static_cast<std::uint8_t>(route);
    record.window = window_;
    record.target = target;
    record.count = count;
    record.bytes = bytes;
    if (drained_.size() < kMostCounts) return drained_.push_back(record);
    // There is no room for each target, so the records are merged by operation and route.
    for (TraceRecord& each : drained_) each.target = -1;
    const auto same = std::ranges::find_if(
        drained_, [&](const TraceRecord& each) { return each.what == record.what && each.route == record.route; });
    if (same == drained_.end()) return drained_.push_back(record);
    same->count += count;
    same->bytes += bytes;
  });
}

void WindowStatistics::fenced(bool no_succeed, const Moment& begun) {
  if (trace_ != nullptr) query_processes(-1);
  const std::scoped_lock held(mutex_);
  const Ticks waited = this->waited(WaitKind::kFence, begun);
  StatisticsSums::Epochs& sums = sums_.epochs[static_cast<std::size_t>(EpochKind::kFence)];
  ++sums.count;
  sums.waited += waited;
  if (trace_ == nullptr) return;
  const Ticks end = now();
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
  if (target >= 0) query_processes(target);
  const std::scoped_lock held(mutex_);
  ++(target < 0 ? sums_.flushes_all : sums_.flushes);
  const Ticks waited = this->waited(WaitKind::kFlush, begun);
  if (waited == 0) return;
  if (target >= 0) target_sums(target).waited += waited;
  if (trace_ == nullptr) return;
  TraceRecord record;
  record.kind = TraceKind::kFlush;
  record.site = site_;
  record.window = window_;
  record.target = target;
  record.begin = begun.at;
  record.end = now();
  trace_->epochs().add(record);
}

void WindowStatistics::operated(int target, Counted what, std::uint64_t bytes, const Moment& begun) {
  query_processes(target);
  const std::scoped_lock held(mutex_);
  waited(WaitKind::kOperation, begun);
  const Ticks end = ticks();
  sums_.slow_operations += end - begun.at;
  ++sums_.slow_operation_calls;
  target_sums(target).slow_operations += end - begun.at;
  StatisticsSums::Sized& sized = sums_.sized[static_cast<std::size_t>(what)][OperationCounts::size_class(bytes)];
  ++sized.count;
  sized.time += end - begun.at;
  if (trace_ == nullptr) return;
  TraceRecord record;
  record.kind = TraceKind::kOperation;
  record.site = site_;
  record.what = static_cast<std::uint8_t>(what);
  record.route = static_cast<std::uint8_t>(space_.kind(target));
  record.window = window_;
  record.target = target;
  record.begin = begun.at;
  record.end = end;
  record.count = 1;
  record.bytes = bytes;
  trace_->operations().add(record);
}

void WindowStatistics::named(const std::string& name) {
  {
    const std::scoped_lock held(mutex_);
    if (!name.empty() && sums_.names.size() < StatisticsSums::kMostNames) sums_.names.insert(name);
  }
  if (trace_ != nullptr) library().statistics->window_named(window_, name);
}

void WindowStatistics::complete_targets() {
  query_processes(-1);
  const std::scoped_lock held(mutex_);
  drained_.clear();
  drain(-1);
}

StatisticsSums WindowStatistics::sums() const {
  const std::scoped_lock held(mutex_);
  StatisticsSums sums = sums_;
  counts_.each([&](int target, Counted what, std::uint64_t count, std::uint64_t bytes) {
    StatisticsSums::Operations& done =
        sums.operations[static_cast<std::size_t>(space_.kind(target))][static_cast<std::size_t>(what)];
    done.count += count;
    done.bytes += bytes;
    StatisticsSums::Target& there = sums.targets[process_of(target)];
    there.operations.count += count;
    there.operations.bytes += bytes;
  });
  sums.slow = counts_.slow();
  sums.sizes = counts_.sizes();
  return sums;
}

void AllWindowStatistics::enter(WindowStatistics& window_statistics) {
  const std::scoped_lock held(mutex_);
  live_.push_back(&window_statistics);
}

void AllWindowStatistics::leave(WindowStatistics& window_statistics) {
  const std::scoped_lock held(mutex_);
  std::erase(live_, &window_statistics);
  freed_[window_statistics.kind()].add(window_statistics.sums());
}

std::map<std::string, StatisticsSums> AllWindowStatistics::sums() {
  const std::scoped_lock held(mutex_);
  std::map<std::string, StatisticsSums> sums = freed_;
  for (const WindowStatistics* window_statistics : live_)
    sums[window_statistics->kind()].add(window_statistics->sums());
  return sums;
}

void AllWindowStatistics::complete_targets() {
  std::vector<WindowStatistics*> live;
  {
    const std::scoped_lock held(mutex_);
    live = live_;
  }
  for (WindowStatistics* window_statistics : live) window_statistics->complete_targets();
}

std::uint32_t AllWindowStatistics::add_window(TraceRecord window) {
  const std::scoped_lock held(mutex_);
  window.window = next_number_++;
  if (windows_.size() < kMostSummaries) windows_.push_back(window);
  return window.window;
}

void AllWindowStatistics::window_freed(std::uint32_t number, Ticks at) {
  const std::scoped_lock held(mutex_);
  if (number < windows_.size()) windows_[number].end = at;
}

void AllWindowStatistics::window_named(std::uint32_t number, const std::string& name) {
  const std::scoped_lock held(mutex_);
  if (number < windows_.size()) names_[number] = name;
}

std::map<std::uint32_t, std::string> AllWindowStatistics::window_names() const {
  const std::scoped_lock held(mutex_);
  return names_;
}

std::vector<TraceRecord> AllWindowStatistics::windows() const {
  const std::scoped_lock held(mutex_);
  return windows_;
}

}  // namespace farside::pmpi

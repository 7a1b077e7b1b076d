// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>

#include "tools/common/text.hpp"
#include "tools/trace/trace.hpp"
#include "transport/base/log.hpp"

namespace farside::tools::trace {
namespace {

template <class... Args>
[[noreturn]] void refuse(const std::string& file, fmt::format_string<Args...> text, Args&&... args) {
  throw std::runtime_error(fmt::format("{}: {}", file, fmt::format(text, std::forward<Args>(args)...)));
}

// Converts ticks to nanoseconds. A time outside the span of the file shows that the file is damaged.
class Clock {
 public:
  Clock(const std::string& file, const TraceHeader& header)
      : file_(file), header_(header), per_tick_(ns_per_tick(header.first, header.last)) {
    // The accepted frequencies are 1 Hz to 100 GHz.
    if (!(per_tick_ > 0.01 && per_tick_ <= 1e9) || header.last.ns < header.first.ns || header.last.ns > kMost) {
      refuse(file_, "its clock does not run ({} ticks in {} ns); the file is damaged",
             header.last.ticks - header.first.ticks, header.last.ns - header.first.ns);
    }
  }
  Ticks ns(Ticks ticks, std::size_t record) const {
    if (ticks == 0) return 0;
    const double since = (static_cast<double>(ticks) - static_cast<double>(header_.first.ticks)) * per_tick_;
    const double length = static_cast<double>(header_.last.ns - header_.first.ns);
    if (since < -kSlack || since > length + kSlack)
      refuse(file_, "record {} is of a time that the file does not cover; the file is damaged", record);
    // The difference is taken in whole ticks, so that near times stay distinct.
    const auto ticked = static_cast<std::int64_t>(ticks - header_.first.ticks);
    return header_.first.ns + static_cast<Ticks>(std::llround(static_cast<double>(ticked) * per_tick_));
  }
  Ticks length_ns(Ticks ticks, std::size_t record) const {
    const double length = static_cast<double>(ticks) * per_tick_;
    if (length > static_cast<double>(kMost))
      refuse(file_, "record {} sums up more time than there is; the file is damaged", record);
    return static_cast<Ticks>(length);
  }

 private:
  static constexpr double kSlack = 1e6;
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  const std::string& file_;
  const TraceHeader& header_;
  double per_tick_;
};

// Adds a text to those of the trace.
void add_text(const TraceText& record, std::size_t number, RankTrace& trace) {
  if (static_cast<unsigned>(record.of) > static_cast<unsigned>(TraceText::Of::kReport) ||
      record.bytes > record.text.size())
    refuse(trace.file.path, "record {} has a value that there is not; the file is damaged", number);
  std::string& text = record.of == TraceText::Of::kCpus     ? trace.cpus
                      : record.of == TraceText::Of::kWindow ? trace.window_names[record.number]
                      : record.of == TraceText::Of::kReport ? trace.reports[record.number]
                                                            : trace.sites[record.number];
  text.append(record.text.data(), std::min<std::size_t>(record.bytes, TraceText::kMost - text.size()));
}

void check(const std::string& file, const TraceRecord& record, std::size_t number) {
  const auto kind = static_cast<unsigned>(record.kind);
  if (kind < static_cast<unsigned>(TraceKind::kWindow) || kind > static_cast<unsigned>(TraceKind::kReport))
    refuse(file, "record {} is of kind {}, which there is not; the file is damaged", number, kind);
  const bool epoch = record.kind == TraceKind::kEpoch || record.kind == TraceKind::kTotal;
  if ((epoch && record.detail >= kEpochNames.size()) ||
      (record.kind == TraceKind::kWindow && record.detail >= kFlavorNames.size()) ||
      record.what >= kCountedNames.size() || record.route >= kRouteKinds || record.target < -1)
    refuse(file, "record {} has a value that there is not; the file is damaged", number);
}

}  // namespace

RankTrace parse(const std::string& file, std::string_view bytes) {
  RankTrace trace;
  TraceHeader& header = trace.header;
  if (bytes.size() < sizeof header) {
    refuse(file, "{} bytes are less than the {} of a header; was the program ended before MPI_Finalize was over?",
           bytes.size(), sizeof header);
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != TraceHeader::kMagic) refuse(file, "this is no trace of farside");
  if (header.order != TraceHeader::kOrder) refuse(file, "written on a machine of another byte order; read it there");
  if (header.version != TraceHeader::kVersion)
    refuse(file, "of version {}; this farside reads version {}", header.version, TraceHeader::kVersion);
  if (header.header_bytes != sizeof(TraceHeader) || header.record_bytes != sizeof(TraceRecord))
    refuse(file, "its records are of {} bytes, not {}; the file is damaged", header.record_bytes, sizeof(TraceRecord));
  const std::size_t room = (bytes.size() - sizeof header) / sizeof(TraceRecord);
  if (header.records != room || (bytes.size() - sizeof header) % sizeof(TraceRecord) != 0)
    refuse(file, "{} records are announced and {} are there; the file was cut short", header.records, room);
  constexpr std::int64_t kLatest = std::int64_t{1} << 62;  // nanoseconds since 1970
  constexpr std::int32_t kMostRanks = 1 << 30;
  if (header.ranks < 0 || header.ranks > kMostRanks || header.spawned > 1 || header.process_started < 0 ||
      header.process_started > kLatest || header.written < 0 || header.written > kLatest)
    refuse(file, "its header has a value that there is not; the file is damaged");
  trace.file = {file,
                {.rank = header.rank,
                 .ranks = header.ranks,
                 .spawned = header.spawned != 0,
                 .agreed = header.agreed,
                 .started = header.process_started,
                 .written = header.written}};
  trace.host = printable({header.host.data(), strnlen(header.host.data(), header.host.size())});
  const Clock clock(file, header);
  trace.records.resize(room);  // texts stay in it, and are skipped by their kind
  for (std::size_t i = 0; i < room; ++i) {
    TraceRecord& record = trace.records[i];
    std::memcpy(&record, bytes.data() + sizeof header + i * sizeof record, sizeof record);
    if (record.kind == TraceKind::kText) {
      add_text(std::bit_cast<TraceText>(record), i, trace);
      continue;
    }
    check(file, record, i);
    if (record.kind == TraceKind::kClock) {
      // The monotonic clocks of two machines may differ by years of uptime: the limit is 9 years.
      constexpr std::int64_t kMost = std::int64_t{1} << 58;
      const auto ahead = static_cast<std::int64_t>(record.begin);
      if (ahead > kMost || ahead < -kMost || record.end > static_cast<std::uint64_t>(kMost))
        refuse(file, "record {} has clocks too far apart; the file is damaged", i);
    } else if (record.kind == TraceKind::kTotal) {
      record.begin = clock.length_ns(record.begin, i);
      record.end = clock.length_ns(record.end, i);
    } else {
      record.begin = clock.ns(record.begin, i);
      record.end = clock.ns(record.end, i);
      bool ordered =
          record.kind == TraceKind::kWindow || record.kind == TraceKind::kCounts || record.begin <= record.end;
      if (record.kind == TraceKind::kEpoch) {
        record.granted = clock.ns(record.granted, i);
        record.closing = clock.ns(record.closing, i);
        ordered = record.begin <= record.granted && record.granted <= record.closing && record.closing <= record.end;
      }
      if (!ordered) refuse(file, "record {} ends before it begins; the file is damaged", i);
    }
  }
  trace.cpus = printable(trace.cpus);
  for (auto* texts : {&trace.window_names, &trace.sites, &trace.reports})
    for (auto& [number, text] : *texts) text = printable(text);
  return trace;
}

std::vector<RankTrace> read_all(const std::string& prefix, std::vector<std::string>& left_out) {
  std::vector<RankTrace> traces;
  left_out = read_rank_files(prefix, ".trace", "FARSIDE_TRACE", [&](const std::string& file, const std::string& bytes) {
    traces.push_back(parse(file, bytes));
  });
  std::ranges::sort(traces, [](const RankTrace& a, const RankTrace& b) {
    return std::tie(a.file.job.rank, a.file.path) < std::tie(b.file.job.rank, b.file.path);
  });
  std::vector<RankFile> files;
  for (const RankTrace& trace : traces) files.push_back(trace.file);
  check_one_launch(files, "FARSIDE_TRACE");
  return traces;
}

namespace {

// How far a clock is ahead of the first process's clock.
struct Offset {
  Nanoseconds ahead = 0;
  Nanoseconds uncertain = -1;  // -1: it was not compared with that clock
};

// Returns the offsets of the clocks of the processes.
std::vector<Offset> offsets(const std::vector<RankTrace>& traces) {
  struct Edge {
    std::uint64_t from, to;
    Nanoseconds ahead, uncertain;  // of `to` against `from`
  };
  std::vector<Edge> edges;
  for (const RankTrace& trace : traces) {
    for (const TraceRecord& record : trace.records) {
      if (record.kind != TraceKind::kClock) continue;
      const auto ahead = static_cast<Nanoseconds>(record.begin);
      const auto uncertain = static_cast<Nanoseconds>(std::min<std::uint64_t>(record.end, std::uint64_t{1} << 61));
      edges.push_back({trace.header.clock, record.granted, ahead, uncertain});
      edges.push_back({record.granted, trace.header.clock, -ahead, uncertain});
    }
  }
  std::map<std::uint64_t, Offset> known{{traces.front().header.clock, {0, 0}}};
  std::deque<std::uint64_t> next{traces.front().header.clock};
  for (; !next.empty(); next.pop_front()) {
    const Offset here = known.at(next.front());
    for (const Edge& edge : edges) {
      if (edge.from != next.front() || known.contains(edge.to)) continue;
      known[edge.to] = {here.ahead + edge.ahead, here.uncertain + edge.uncertain};
      next.push_back(edge.to);
    }
  }
  std::vector<Offset> result;
  for (const RankTrace& trace : traces) result.push_back(known[trace.header.clock]);
  return result;
}

bool is_lock(EpochKind kind) { return kind == EpochKind::kLockShared || kind == EpochKind::kLockExclusive; }

// Whether one of the two epochs excludes the other.
bool conflict(const Epoch& one, const Epoch& other) {
  if (one.window != other.window || one.process == other.process) return false;
  // Two locks at one target exclude each other, and a lock_all and a lock at any, if one of the two is exclusive.
  const bool meet =
      is_lock(one.kind) && is_lock(other.kind) ? one.target == other.target : is_lock(one.kind) != is_lock(other.kind);
  return meet && (one.kind == EpochKind::kLockExclusive || other.kind == EpochKind::kLockExclusive);
}

}  // namespace

std::string Window::title() const {
  return name.empty() ? fmt::format("window {}", number) : fmt::format("window {} '{}'", number, name);
}

int Timeline::process_of(int window, int target) const {
  if (window < 0 || target < 0) return -1;
  const std::map<int, int>& ranks_of = windows[static_cast<std::size_t>(window)].processes;
  const auto found = ranks_of.find(target);
  return found == ranks_of.end() ? -1 : found->second;
}

Timeline merge(const std::vector<RankTrace>& traces) {
  Timeline timeline;
  const std::vector<Offset> clocks = offsets(traces);
  std::map<int, int> with_rank;
  // The time of the first event, on the first process's clock.
  Nanoseconds zero = std::numeric_limits<Nanoseconds>::max();
  for (std::size_t p = 0; p < traces.size(); ++p) {
    ++with_rank[traces[p].header.rank];
    zero = std::min(zero, static_cast<Nanoseconds>(traces[p].header.first.ns) - clocks[p].ahead);
    add_once(timeline.hosts, traces[p].host);
  }
  std::map<std::string, int> site_indices;

  std::map<std::uint64_t, int> window_ids;
  for (std::size_t p = 0; p < traces.size(); ++p) {
    const RankTrace& trace = traces[p];
    const auto process = static_cast<int>(p);
    std::string label = fmt::format("rank {}", trace.header.rank);
    if (with_rank[trace.header.rank] > 1) label += fmt::format(" (process {})", trace.header.pid);
    std::string name = timeline.hosts.size() > 1 ? label + " on " + trace.host : label;
    timeline.processes.push_back({trace.header.rank, std::move(label), std::move(name), trace.host, clocks[p].uncertain,
                                  trace.header.lost_epochs, trace.header.lost_operations, trace.header.lost_served});
    const auto at = [&](Ticks ns) { return static_cast<Nanoseconds>(ns) - clocks[p].ahead - zero; };
    timeline.length = std::max(timeline.length, at(trace.header.last.ns));

    std::map<std::uint32_t, int> windows;  // by the process's own number
    std::map<std::uint32_t, std::size_t> latest;
    const auto window_of = [&](const TraceRecord& record) {
      const auto found = windows.find(record.window);
      return found == windows.end() ? -1 : found->second;
    };
    const auto site_of = [&](std::uint16_t number) -> int {
      const auto text = trace.sites.find(number);
      if (number == 0 || text == trace.sites.end()) return -1;
      const auto [entry, fresh] = site_indices.try_emplace(text->second, static_cast<int>(timeline.sites.size()));
      if (fresh) timeline.sites.push_back(text->second);
      return entry->second;
    };
    const auto count = [&](const TraceRecord& record, Epoch& epoch) {
      if (record.count > 0)
        epoch.operations[{static_cast<RouteKind>(record.route), static_cast<Counted>(record.what)}].add(record.count,
                                                                                                        record.bytes);
    };
    for (const TraceRecord& record : trace.records) {
      switch (record.kind) {
        case TraceKind::kWindow: {
          const auto [entry, fresh] = window_ids.try_emplace(record.granted, static_cast<int>(timeline.windows.size()));
          const auto ranks = static_cast<int>(record.closing >> 32 & 0x7fffffff);
          if (fresh) {
            timeline.windows.push_back(
                {static_cast<int>(record.window), {}, static_cast<TraceFlavor>(record.detail), ranks, {}});
          }
          windows[record.window] = entry->second;
          Window& window = timeline.windows[static_cast<std::size_t>(entry->second)];
          window.processes[static_cast<int>(record.closing & 0x7fffffff)] = process;
          if (const auto text = trace.window_names.find(record.window);
              text != trace.window_names.end() && window.name.empty())
            window.name = text->second;
          break;
        }
        case TraceKind::kEpoch: {
          latest[record.window] = timeline.epochs.size();
          timeline.epochs.push_back({process,
                                     window_of(record),
                                     static_cast<EpochKind>(record.detail),
                                     record.target,
                                     at(record.begin),
                                     at(record.granted),
                                     at(record.closing),
                                     at(record.end),
                                     {},
                                     site_of(record.site)});
          count(record, timeline.epochs.back());
          break;
        }
        case TraceKind::kCounts:
          // Operations whose epoch was overwritten are left out as well.
          if (const auto epoch = latest.find(record.window);
              epoch != latest.end() && timeline.epochs[epoch->second].end == at(record.end))
            count(record, timeline.epochs[epoch->second]);
          break;
        case TraceKind::kFlush:
        case TraceKind::kNotified:
        case TraceKind::kOperation:
        case TraceKind::kServed:
          timeline.spans.push_back({record.kind, process, record.kind == TraceKind::kServed ? -1 : window_of(record),
                                    record.target, static_cast<Counted>(record.what),
                                    static_cast<RouteKind>(record.route), at(record.begin), at(record.end),
                                    record.bytes, site_of(record.site)});
          break;
        case TraceKind::kTotal: {
          EpochTotal& total = timeline.totals[static_cast<EpochKind>(record.detail)];
          total.count += record.count;
          total.seconds += static_cast<double>(record.begin) * 1e-9;
          total.waited += static_cast<double>(record.end) * 1e-9;
          break;
        }
        case TraceKind::kReport:
          if (const auto text = trace.reports.find(static_cast<std::uint32_t>(record.count));
              text != trace.reports.end())
            timeline.warnings.push_back(
                fmt::format("{}, at {}: {}", timeline.processes.back().name, duration(at(record.begin)), text->second));
          break;
        case TraceKind::kClock:
        case TraceKind::kText: break;
      }
    }
  }
  std::vector<RankFile> files;
  for (const RankTrace& trace : traces) files.push_back(trace.file);
  if (std::string missing = missing_ranks(files); !missing.empty()) timeline.warnings.push_back(std::move(missing));
  Placement placement;
  for (const RankTrace& trace : traces) placement.add(trace.host, trace.cpus);
  for (std::string& line : placement.oversubscribed()) timeline.warnings.push_back(std::move(line));
  std::ranges::stable_sort(timeline.epochs, {}, &Epoch::begin);
  std::ranges::stable_sort(timeline.spans, {}, &Span::begin);
  return timeline;
}

std::vector<LockWait> lock_waits(const Timeline& timeline) {
  // The holders of each window, ordered by the time of acquisition. For each holder, latest_end is the latest end up
  // to it, so that a search backwards can stop.
  struct Held {
    std::vector<std::size_t> epochs;
    std::vector<Nanoseconds> latest_end;
  };
  std::map<int, Held> windows;
  for (std::size_t i = 0; i < timeline.epochs.size(); ++i) {
    const Epoch& epoch = timeline.epochs[i];
    if (epoch.window >= 0 && (is_lock(epoch.kind) || epoch.kind == EpochKind::kLockAll))
      windows[epoch.window].epochs.push_back(i);
  }
  for (auto& [window, held] : windows) {
    std::ranges::stable_sort(held.epochs, {}, [&](std::size_t i) { return timeline.epochs[i].granted; });
    Nanoseconds latest = std::numeric_limits<Nanoseconds>::min();
    for (const std::size_t i : held.epochs) {
      latest = std::max(latest, timeline.epochs[i].end);
      held.latest_end.push_back(latest);
    }
  }
  std::vector<LockWait> waits;
  for (const auto& [window, held] : windows) {
    for (std::size_t place = 0; place < held.epochs.size(); ++place) {
      const Epoch& waiter = timeline.epochs[held.epochs[place]];
      if (waiter.granted <= waiter.begin) continue;
      LockWait wait{held.epochs[place], waiter.granted - waiter.begin, {}};
      for (std::size_t before = place; before-- > 0 && held.latest_end[before] > waiter.begin;) {
        const Epoch& holder = timeline.epochs[held.epochs[before]];
        if (holder.end <= waiter.begin || !conflict(waiter, holder)) continue;
        const Nanoseconds until = std::min(holder.end, waiter.granted);
        wait.holders.push_back(
            {held.epochs[before], std::max<Nanoseconds>(until - std::max(holder.granted, waiter.begin), 0)});
      }
      std::ranges::reverse(wait.holders);
      waits.push_back(std::move(wait));
    }
  }
  std::ranges::stable_sort(waits, std::ranges::greater(), &LockWait::waited);
  return waits;
}

std::vector<FenceWait> fence_waits(const Timeline& timeline) {
  // The n-th fence of a window is the same fence at all its ranks, unless some were overwritten.
  std::vector<FenceWait> waits;
  for (const Process& process : timeline.processes)
    if (process.lost_epochs > 0) return waits;
  std::map<int, std::map<int, std::vector<std::size_t>>> fences;  // by window and process
  for (std::size_t i = 0; i < timeline.epochs.size(); ++i) {
    const Epoch& epoch = timeline.epochs[i];
    if (epoch.kind == EpochKind::kFence && epoch.window >= 0) fences[epoch.window][epoch.process].push_back(i);
  }
  for (auto& [window, ranks] : fences) {
    if (static_cast<int>(ranks.size()) != timeline.windows[static_cast<std::size_t>(window)].ranks) continue;
    std::size_t most = std::numeric_limits<std::size_t>::max();
    for (auto& [process, own] : ranks) {
      std::ranges::stable_sort(own, {}, [&](std::size_t i) { return timeline.epochs[i].closing; });
      most = std::min(most, own.size());
    }
    for (std::size_t n = 0; n < most; ++n) {
      FenceWait wait{ranks.begin()->second[n], 0};
      for (const auto& [process, own] : ranks)
        if (timeline.epochs[own[n]].closing > timeline.epochs[wait.last].closing) wait.last = own[n];
      for (const auto& [process, own] : ranks)
        wait.together += timeline.epochs[wait.last].closing - timeline.epochs[own[n]].closing;
      waits.push_back(wait);
    }
  }
  std::ranges::stable_sort(waits, std::ranges::greater(), &FenceWait::together);
  return waits;
}

std::vector<AwaitedProcess> awaited_processes(const Timeline& timeline) {
  std::map<int, AwaitedProcess> found;
  const auto of = [&](std::size_t epoch) -> AwaitedProcess& {
    const int process = timeline.epochs[epoch].process;
    return found.try_emplace(process, AwaitedProcess{process}).first->second;
  };
  for (const LockWait& wait : lock_waits(timeline)) {
    for (const LockWait::Holder& holder : wait.holders) {
      AwaitedProcess& awaited = of(holder.epoch);
      awaited.by_locks += holder.meanwhile;
      ++awaited.waits;
    }
  }
  for (const FenceWait& wait : fence_waits(timeline)) {
    if (wait.together == 0) continue;
    AwaitedProcess& awaited = of(wait.last);
    awaited.by_fences += wait.together;
    ++awaited.fences;
  }
  std::vector<AwaitedProcess> all;
  for (const auto& [process, awaited] : found) all.push_back(awaited);
  std::ranges::stable_sort(all, std::ranges::greater(),
                           [](const AwaitedProcess& each) { return each.by_locks + each.by_fences; });
  return all;
}

}  // namespace farside::tools::trace

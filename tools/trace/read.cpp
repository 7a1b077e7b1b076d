// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>

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
  if (static_cast<unsigned>(record.of) > static_cast<unsigned>(TraceText::Of::kCpus) ||
      record.bytes > record.text.size())
    refuse(trace.file.path, "record {} has a value that there is not; the file is damaged", number);
  std::string& text = record.of == TraceText::Of::kCpus     ? trace.cpus
                      : record.of == TraceText::Of::kWindow ? trace.window_names[record.number]
                                                            : trace.sites[record.number];
  text.append(record.text.data(), std::min<std::size_t>(record.bytes, TraceText::kMost - text.size()));
}

void check(const std::string& file, const TraceRecord& record, std::size_t number) {
  const auto kind = static_cast<unsigned>(record.kind);
  if (kind < static_cast<unsigned>(TraceKind::kWindow) || kind > static_cast<unsigned>(TraceKind::kNotified))
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
  for (auto* texts : {&trace.window_names, &trace.sites})
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

}  // namespace farside::tools::trace

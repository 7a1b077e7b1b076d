// SPDX-License-Identifier: BSD-3-Clause
// `farside trace` reads forged traces. It must refuse them with a reason, or show them in all its forms.
//
//   input:  odd: two traces, of half the bytes each; even: one
#include "tools/trace/trace.hpp"

#include <bit>
#include <sstream>
#include <stdexcept>

#include "tests/fuzz/fuzz.hpp"

namespace farside::fuzz {
namespace {

Bytes trace_of(int rank, const std::vector<TraceRecord>& records) {
  TraceHeader header;
  header.header_bytes = sizeof(TraceHeader);
  header.record_bytes = sizeof(TraceRecord);
  header.rank = rank;
  header.pid = 100 + rank;
  header.records = records.size();
  header.clock = 1;
  header.first = {1000, 1000};
  header.last = {101000, 101000};
  std::strcpy(header.host.data(), "host");
  Bytes bytes;
  append(bytes, header);
  for (const TraceRecord& record : records) append(bytes, record);
  return bytes;
}

std::vector<TraceRecord> records_of(std::uint64_t rank) {
  std::vector<TraceRecord> all;
  TraceRecord window;
  window.kind = TraceKind::kWindow;
  window.begin = 1000;
  window.granted = 77;
  window.closing = rank | std::uint64_t{2} << 32;
  all.push_back(window);
  for (std::uint64_t i = 0; i < 4; ++i) {
    TraceRecord epoch;
    epoch.detail = static_cast<std::uint8_t>(i % 2 == 0 ? EpochKind::kLockExclusive : EpochKind::kFence);
    epoch.target = i % 2 == 0 ? 0 : -1;
    epoch.begin = 2000 + 10000 * i + 1000 * rank;
    epoch.granted = epoch.begin + 3000;
    epoch.closing = epoch.granted + 1000;
    epoch.end = epoch.closing + 500;
    epoch.count = i;
    epoch.bytes = 8 * i;
    all.push_back(epoch);
    for (const TraceKind kind : {TraceKind::kCounts, TraceKind::kFlush, TraceKind::kOperation, TraceKind::kServed}) {
      TraceRecord more = epoch;
      more.kind = kind;
      more.detail = 0;
      all.push_back(more);
    }
  }
  TraceRecord total;
  total.kind = TraceKind::kTotal;
  total.begin = 9000;
  total.end = 3000;
  total.count = 4;
  all.push_back(total);
  TraceRecord clock;
  clock.kind = TraceKind::kClock;
  clock.begin = 5;
  clock.end = 2;
  clock.count = 9;
  all.push_back(clock);
  TraceText text;
  text.bytes = 4;
  text.text = {'g', 'r', 'i', 'd'};
  all.push_back(std::bit_cast<TraceRecord>(text));
  TraceRecord report;
  report.kind = TraceKind::kReport;
  report.begin = report.end = 4000;
  all.push_back(report);
  text.of = TraceText::Of::kReport;
  all.push_back(std::bit_cast<TraceRecord>(text));
  text.of = TraceText::Of::kCpus;
  text.text = {'0', '-', '3', ','};
  all.push_back(std::bit_cast<TraceRecord>(text));
  return all;
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  Bytes one{0}, two{1};
  const Bytes first = trace_of(0, records_of(0)), second = trace_of(1, records_of(1));
  one.insert(one.end(), first.begin(), first.end());
  two.insert(two.end(), first.begin(), first.end());
  two.insert(two.end(), second.begin(), second.end());
  return {one, two};
}

}  // namespace farside::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace farside::tools::trace;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t first = data[0] % 2 == 0 ? bytes.size() : bytes.size() / 2;
  std::vector<RankTrace> traces;
  try {
    traces.push_back(parse("one", bytes.substr(0, first)));
    if (data[0] % 2 != 0) traces.push_back(parse("two", bytes.substr(first)));
  } catch (const std::runtime_error&) {
    return 0;
  }
  const Timeline timeline = merge(traces);
  const std::string told = summary(timeline);
  farside::fuzz::require(!told.empty() && farside::fuzz::is_plain(told), "what is read can be told");
  std::ostringstream chrome, page;
  write_chrome(chrome, timeline);
  write_page(page, timeline, 100);
  farside::fuzz::require(!chrome.str().empty() && !page.str().empty(), "what is read can be shown");
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/trace_file.hpp"

#include <string>
#include <unistd.h>
#include <vector>

#include "pmpi/observe/clocks.hpp"
#include "pmpi/observe/rank_file.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

std::vector<TraceRecord> totals() {
  StatisticsSums all;
  for (const auto& [kind, sums] : AllWindowStatistics::instance().sums()) all.add(sums);
  std::vector<TraceRecord> records;
  for (std::size_t kind = 0; kind < all.epochs.size(); ++kind) {
    if (all.epochs[kind].count == 0) continue;
    TraceRecord record;
    record.kind = TraceKind::kTotal;
    record.detail = static_cast<std::uint8_t>(kind);
    record.count = all.epochs[kind].count;
    record.begin = all.epochs[kind].in_them;
    record.end = all.epochs[kind].waited;
    records.push_back(record);
  }
  return records;
}

}  // namespace

void write_trace() {
  const Result<const Settings*> settings = Process::instance().settings();
  Trace* trace = Trace::active();
  if (!settings || trace == nullptr) return;
  std::vector<TraceRecord> records = AllWindowStatistics::instance().windows();
  const auto append = [&records](const std::vector<TraceRecord>& more) {
    records.insert(records.end(), more.begin(), more.end());
  };
  append(known_clocks());
  append(totals());
  append(trace->epochs().take());
  append(trace->operations().take());
  append(trace->served().take());

  TraceHeader header;
  header.header_bytes = sizeof(TraceHeader);
  header.record_bytes = sizeof(TraceRecord);
  header.rank = own_rank();
  header.pid = getpid();
  header.records = records.size();
  header.lost_epochs = trace->epochs().lost();
  header.lost_operations = trace->operations().lost();
  header.lost_served = trace->served().lost();
  header.clock = clock_id();
  header.first = trace->first();
  header.last = ClockPair::read();
  gethostname(header.host.data(), header.host.size() - 1);

  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(records.data()), records.size() * sizeof(TraceRecord));
  (void)write_rank_file("FARSIDE_TRACE", settings.value()->trace, "trace", bytes);
}

}  // namespace farside::pmpi

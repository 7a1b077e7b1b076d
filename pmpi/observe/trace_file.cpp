// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "pmpi/library/library.hpp"
#include "pmpi/observe/call_sites.hpp"
#include "pmpi/observe/clocks.hpp"
#include "pmpi/observe/statistics_file.hpp"
#include "pmpi/observe/this_job.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

std::vector<TraceRecord> totals() {
  StatisticsSums all;
  for (const auto& [kind, sums] : library().statistics->sums()) all.add(sums);
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

// Adds a text in as many records as it needs.
void add_text(TraceText::Of of, std::uint32_t number, std::string_view text, std::vector<TraceRecord>& records) {
  for (text = text.substr(0, TraceText::kMost); !text.empty();) {
    TraceText part;
    part.of = of;
    part.number = number;
    part.bytes = static_cast<std::uint16_t>(text.copy(part.text.data(), part.text.size()));
    text.remove_prefix(part.bytes);
    records.push_back(std::bit_cast<TraceRecord>(part));
  }
}

void add_texts(std::vector<TraceRecord>& records) {
  for (const auto& [number, name] : library().statistics->window_names())
    add_text(TraceText::Of::kWindow, number, name, records);
  std::uint32_t number = 0;
  for (const CallSites::Site& site : library().sites->all())
    add_text(TraceText::Of::kSite, ++number, site.text, records);
  add_text(TraceText::Of::kCpus, 0, own_cpus(), records);
}

}  // namespace

void write_trace() {
  const Result<const Settings*> settings = Process::instance().settings();
  Trace* trace = Trace::active();
  if (!settings || trace == nullptr) return;
  std::vector<TraceRecord> records = library().statistics->windows();
  const auto append = [&records](const std::vector<TraceRecord>& more) {
    records.insert(records.end(), more.begin(), more.end());
  };
  add_texts(records);
  append(known_clocks());
  append(totals());
  append(trace->epochs().take());
  append(trace->operations().take());
  append(trace->served().take());

  TraceHeader header;
  header.header_bytes = sizeof(TraceHeader);
  header.record_bytes = sizeof(TraceRecord);
  header.pid = getpid();
  header.records = records.size();
  header.lost_epochs = trace->epochs().lost();
  header.lost_operations = trace->operations().lost();
  header.lost_served = trace->served().lost();
  header.clock = clock_id();
  const Job job = this_job();
  header.rank = job.rank;
  header.ranks = job.ranks;
  header.spawned = job.spawned ? 1 : 0;
  header.agreed = job.agreed;
  header.process_started = job.started;
  header.written = job.written;
  header.first = trace->first();
  header.last = ClockPair::read();
  gethostname(header.host.data(), header.host.size() - 1);

  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(records.data()), records.size() * sizeof(TraceRecord));
  (void)write_rank_file("FARSIDE_TRACE", settings.value()->trace, "trace", bytes);
}

}  // namespace farside::pmpi

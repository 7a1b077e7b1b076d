// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <mutex>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "pmpi/library/library.hpp"
#include "pmpi/observe/call_sites.hpp"
#include "pmpi/observe/observation.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

void add_totals(std::vector<TraceRecord>& records) {
  StatisticsSums all;
  for (const auto& [kind, sums] : library().statistics->sums()) all.add(sums);
  for (std::size_t kind = 0; kind < all.epochs.size(); ++kind) {
    const StatisticsSums::Sum& epochs = all.epochs[kind];
    if (epochs.count == 0) continue;
    records.push_back({.kind = TraceKind::kTotal,
                       .detail = static_cast<std::uint8_t>(kind),
                       .begin = epochs.time,
                       .end = epochs.waited,
                       .count = epochs.count});
  }
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

void add_windows_and_texts(std::vector<TraceRecord>& records) {
  for (const WindowStatistics::Traced& window : library().statistics->traced()) {
    records.push_back(window.record);
    add_text(TraceText::Of::kWindow, window.record.window, window.name, records);
  }
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
  std::vector<TraceRecord> records;
  const auto append = [&records](const std::vector<TraceRecord>& more) {
    records.insert(records.end(), more.begin(), more.end());
  };
  add_windows_and_texts(records);
  {
    const std::scoped_lock held(library().observed->mutex);
    append(library().observed->clocks);
  }
  add_totals(records);
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
  write_rank_file("FARSIDE_TRACE", settings.value()->trace, "trace", bytes);
}

}  // namespace farside::pmpi

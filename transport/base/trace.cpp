// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/trace.hpp"

#include <algorithm>

namespace farside {

// A thread may record meanwhile, and overwrite the oldest records while they are copied: these are dropped.
std::vector<TraceRecord> TraceRing::take() const {
  const std::uint64_t end = next_.load(std::memory_order_acquire);
  const std::uint64_t begin = end - std::min<std::uint64_t>(end, mask_ + 1);
  std::vector<TraceRecord> result;
  result.reserve(end - begin);
  for (std::uint64_t i = begin; i < end; ++i) {
    Words words;
    Word* from = place(i);
    for (Word& word : words) word = std::atomic_ref(*from++).load(std::memory_order_relaxed);
    result.push_back(std::bit_cast<TraceRecord>(words));
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::uint64_t begun = begun_.load(std::memory_order_relaxed);
  const std::uint64_t valid = begun - std::min<std::uint64_t>(begun, mask_ + 1);
  if (valid > begin)
    result.erase(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(std::min(valid, end) - begin));
  return result;
}

void TraceServed::add() const {
  TraceRecord record;
  record.kind = TraceKind::kServed;
  record.route = static_cast<std::uint8_t>(route_);
  record.begin = begin_;
  record.end = ticks();
  record.count = 1;
  record.bytes = bytes_;
  Trace::active()->served().add(record);
}

}  // namespace farside

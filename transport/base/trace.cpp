// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/trace.hpp"

#include <algorithm>

namespace farside {

std::vector<TraceRecord> TraceRing::take() const {
  const std::scoped_lock held(mutex_);
  const std::uint64_t kept = std::min<std::uint64_t>(next_, mask_ + 1);
  std::vector<TraceRecord> result;
  result.reserve(kept);
  for (std::uint64_t i = next_ - kept; i < next_; ++i) result.push_back(records_.get()[i & mask_]);
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

// SPDX-License-Identifier: BSD-3-Clause
// Arranges a trace in lanes. A process has lanes for the epochs of its windows (several if they overlap), for its
// operations and flushes, and for the requests that its progress thread served.
#pragma once

#include <string>
#include <vector>

#include "tools/trace/timeline.hpp"

namespace farside::tools::trace {

struct Lane {
  int process;
  std::string name;
};

// The kinds of bars in page.html: those of epochs, then these.
inline constexpr int kFlushBar = 6, kOperationBar = 7, kServedBar = 8;

// An epoch or a span. A span waits for nothing.
struct Bar {
  std::size_t lane = 0;
  int kind = 0;
  std::string name;  // "lock_shared", "put"
  Nanoseconds begin = 0, granted = 0, closing = 0, end = 0;
  int target = -1;         // process; -1: none, or not known
  std::string operations;  // "12 put (mapped, 96 bytes)"
  std::size_t epoch = 0;   // index in timeline.epochs, if it is an epoch

  bool is_epoch() const { return kind < kFlushBar; }
  // The epoch between two fences and, from `closing` on, the second fence.
  bool is_fence() const { return kind == static_cast<int>(EpochKind::kFence); }
};

struct Lanes {
  std::vector<Lane> lanes;  // ordered by process
  std::vector<Bar> bars;
};

Lanes lay_out(const Timeline& timeline);

}  // namespace farside::tools::trace

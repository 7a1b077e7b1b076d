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

struct Bar {
  std::size_t lane;
  std::size_t epoch;  // index in timeline.epochs, or in timeline.spans if is_span
  bool is_span;
};

struct Lanes {
  std::vector<Lane> lanes;  // ordered by process
  std::vector<Bar> bars;
};

Lanes lay_out(const Timeline& timeline);

}  // namespace farside::tools::trace

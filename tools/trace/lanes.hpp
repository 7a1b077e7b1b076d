// SPDX-License-Identifier: BSD-3-Clause
// What is drawn of a trace, and on which line: each process has lines for the epochs of its windows (several
// where they overlap), for its operations and flushes, and for what its progress thread did.
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
  std::size_t epoch;  // of timeline.epochs, or of timeline.spans if is_span
  bool is_span;
};

struct Lanes {
  std::vector<Lane> lanes;  // in the order of processes
  std::vector<Bar> bars;
};

Lanes lay_out(const Timeline& timeline);

}  // namespace farside::tools::trace

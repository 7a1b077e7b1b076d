// SPDX-License-Identifier: BSD-3-Clause
// The cost of an idle window: CPU time (us) or wake-ups of the process's other threads during a second in which the
// main threads of both ranks compute, after some operations in both directions. The figure is that of the rank with
// more.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

// Collective over the pair; info.name selects the figure.
Outcome measure_idle(const MeasureInfo& info, const Pair& pair, const Options& options);

}  // namespace farside::bench

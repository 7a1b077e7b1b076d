// SPDX-License-Identifier: BSD-3-Clause
// What having a window costs while nobody uses it: CPU time (us) or wake-ups of the process' other threads
// during a second in which the main threads of both ranks compute, some operations having gone both ways
// before. Of the two ranks the one with more.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

// Collective over the pair; info.name says which.
Outcome measure_idle(const MeasureInfo& info, const Pair& pair, const Options& options);

}  // namespace farside::bench

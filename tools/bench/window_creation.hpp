// SPDX-License-Identifier: BSD-3-Clause
// Measures the time from the creation of a window of two ranks until it is freed: 4096 bytes per rank, or dynamic.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

// Collective over the pair; info.name selects the kind.
Outcome measure_window_creation(const MeasureInfo& info, const Pair& pair, const Options& options);

}  // namespace farside::bench

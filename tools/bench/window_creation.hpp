// SPDX-License-Identifier: BSD-3-Clause
// How long a window of two ranks takes from its creation until it is freed: 4096 bytes per rank, or dynamic.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

// Collective over the pair; info.name says which kind.
Outcome measure_window_creation(const MeasureInfo& info, const Pair& pair, const Options& options);

}  // namespace farside::bench

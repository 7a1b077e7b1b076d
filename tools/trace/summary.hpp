// SPDX-License-Identifier: BSD-3-Clause
// Summarises a trace as text for a terminal.
#pragma once

#include <string>

#include "tools/trace/timeline.hpp"

namespace farside::tools::trace {

std::string summary(const Timeline& timeline);

// "rank 3 waited 4.1 ms for the exclusive lock of rank 0, held by rank 1 (2.0 ms), rank 2 (2.1 ms)"
std::string in_words(const Timeline& timeline, const LockWait& wait);

// "1.23 ms"
std::string duration(Nanoseconds time);

}  // namespace farside::tools::trace

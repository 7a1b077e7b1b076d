// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_STATS: what this rank did, as one JSON file (README.md in this folder has the format).
#pragma once

namespace farside::pmpi {

// Writes PREFIX.RANK.json if FARSIDE_STATS is set. Called before the runtime finalizes.
void write_statistics();

// The time that it reports begins at the first call, when the first window is made.
void begin_statistics();

// Counts a window of farside, or one that was left to the runtime. Any thread.
void count_farside_window();
void count_runtime_window();

}  // namespace farside::pmpi

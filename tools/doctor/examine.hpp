// SPDX-License-Identifier: BSD-3-Clause
// The part of `farside doctor` that runs on every rank: farside-peers-RUNTIME doctor. It is a plain MPI program, into
// which the command preloads farside. Rank 0 prints what it finds, part by part, as lines of JSON (take_line()), so
// that the command has them if the ranks die or hang.
//
// The steps: the facts of each rank, and, unless these already forbid it, the trial of the providers between the hosts,
// windows inside each node and between them, puts to the next node, clocks. Until the ranks are known to load the same
// farside, none makes a window.
#pragma once

#include <string_view>
#include <vector>

namespace farside::tools {

// `words`: --time-limit SECONDS, of each step. Returns the exit code: 0, or 2 for wrong words. A step that takes too
// long ends the process with 1.
int examine(const std::vector<std::string_view>& words);

}  // namespace farside::tools

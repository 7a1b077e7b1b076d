// SPDX-License-Identifier: BSD-3-Clause
// A large job of which only the first node exists. The ranks of that node are threads of this process. They make spaces
// by all the code of transport/, and the epoch states and lock tables of epochs/, over an endpoint that counts its
// calls. The figures show what farside needs per rank, node and target.
//
// Thread safety: one simulation at a time.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

#include "transport/base/result.hpp"

namespace farside::simulate {

struct JobSettings {
  int ranks = 65536;
  int per_node = 64;
  int windows = 100;
  int touched = 16;       // targets on other nodes that each rank puts to, in each window
  int data_bytes = 4096;  // of each rank's window
  bool alike = true;      // all windows have the same size and displacement unit on all ranks, and keys are chosen
};

struct JobFigures {
  // Bytes on the node. Shared: pages of shared memory. Private: memory of the heap, of all processes together.
  double lifetime_shared = 0, lifetime_private = 0;  // from the first window on, whatever the number of windows is
  double window_shared = 0, window_private = 0;      // per window; shared without the data
  bool shared_counted = true;                        // false: this user may not look at the pages
  double process_private = 0;                        // per window and process
  double first_touched_private = 0;                  // per window and process, for the first target, after the flush
  double touched_private = 0;                        // the same for each further touched target
  double outstanding_private = 0;                    // the same, with a put outstanding
  // Per window, at rank 0, after the first one.
  double collectives = 0, collective_bytes = 0, largest_collective = 0;
  double mappings = 0;
  double requests_at_first_touch = 0;  // messages that ask for a description, per touched target
  // Of one call with `touched` targets outstanding, and of one with none.
  std::size_t visited = 0, visited_when_idle = 0;
  double idle_flush_ns = 0;
};

// Errors: those of making a space.
Result<JobFigures> simulate_job(const JobSettings& settings);

std::string table(const JobSettings& settings, const JobFigures& figures);
nlohmann::ordered_json to_json(const JobSettings& settings, const JobFigures& figures);

}  // namespace farside::simulate

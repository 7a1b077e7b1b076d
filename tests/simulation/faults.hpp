// SPDX-License-Identifier: BSD-3-Clause
// Faults at times drawn by the seed, and how a job may end after them: each call ends with right data, or with an error
// that names a peer which a fault has met.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <climits>

namespace simulation::faults {

// stop: a rank is stopped for up to 20 ms, some times for 400, some times behind a compare-and-swap, as of a lock.
// death: a rank dies. host: all of a host die, and it falls silent. break: a connection breaks. error: an operation
// completes with an error. refusal: a host refuses connections for up to 20 ms. silence: a host falls silent, for up to
// a second, or some times of FARSIDE_PEER_TIMEOUT. shortage: a rank gets no memory, or no descriptor, for up to 20 ms.
struct Plan {
  std::map<std::string, int> means;  // by kind: us between two faults, on average
  int most = INT_MAX;                // faults in all
  std::string text() const;          // as given on the command line
};
// Adds "KIND:US,KIND:US". Returns whether it is a plan.
bool read(std::string_view text, Plan& plan);

// Draws the first faults.
void start(const Plan& plan);
int count();  // so far

// Reads what a rank writes to stderr.
void note(std::string_view line);
// The last faults so far.
std::string journal();

// A fault has met the two ranks: errors may name them to each other.
void meet(int rank, int peer);

// The running rank ends the job: a failure, unless an error explains it.
[[noreturn]] void end_job(const std::string& why);
// Ends the process successfully, as a job may end that has not come to its end.
[[noreturn]] void accept(const std::string& why);

}  // namespace simulation::faults

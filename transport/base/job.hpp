// SPDX-License-Identifier: BSD-3-Clause
// Identifies the launch of a job, for the files that its processes write: statistics and traces. A reader can then tell
// files of one launch from files that another one has left in the same place.
//
//   agreed     random bits of one rank, which all ranks of the launch have; known after a window of all ranks
//   launcher   what the launcher says of this launch in the environment; not every launcher says something
//   time       the processes of one launch run at the same time, those of two launches mostly do not
//
// The first of these that two files have decides. Processes that MPI_Comm_spawn started have ranks, agreed bits and
// mostly a launcher's name of their own; they are of the launch that ran at the same time.
//
// Thread safety: any thread. Cost: a few reads of the environment and of /proc, when a file is written.
#pragma once

#include <cstdint>

namespace farside {

struct Job {
  std::int32_t rank = -1;      // of this process in MPI_COMM_WORLD; -1: unknown
  std::int32_t ranks = 0;      // there; 0: unknown
  bool spawned = false;        // by MPI_Comm_spawn
  std::uint64_t agreed = 0;    // 0: unknown
  std::uint64_t launcher = 0;  // a hash; 0: unknown
  std::int64_t started = 0;    // when the process started, in nanoseconds since 1970
  std::int64_t written = 0;    // when the file was written

  // Whether both may be of one launch.
  bool may_be_same_launch(const Job& other) const;
};

// Returns a hash of what the launcher says of this launch to rank `rank` of `ranks`; 0 if it says nothing. A variable
// counts only if it differs between any two launches, also those inside one batch job.
std::uint64_t launch_id(int rank, int ranks);

// Returns when this process started, in nanoseconds since 1970; 0 if /proc does not say it.
std::int64_t process_start();
// Returns the time now, in nanoseconds since 1970.
std::int64_t time_of_day();

}  // namespace farside

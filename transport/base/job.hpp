// SPDX-License-Identifier: BSD-3-Clause
// Identifies the launch of a job, for the files that its processes write: statistics and traces. A reader can then tell
// files of one launch from files that another one has left in the same place: by random bits that all its ranks agree
// on in a window of all ranks, else by the time, since the processes of one launch run at the same time and those of
// two launches mostly do not. Processes that MPI_Comm_spawn started have ranks and agreed bits of their own; they are
// of the launch that ran at the same time.
#pragma once

#include <chrono>
#include <cstdint>

namespace farside {

// Returns the time now, in nanoseconds since 1970.
inline std::int64_t time_of_day() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Job {
  std::int32_t rank = -1;    // of this process in MPI_COMM_WORLD; -1: unknown
  std::int32_t ranks = 0;    // there; 0: unknown
  bool spawned = false;      // by MPI_Comm_spawn
  std::uint64_t agreed = 0;  // 0: unknown
  std::int64_t started = 0;  // when the process loaded farside, in nanoseconds since 1970
  std::int64_t written = 0;  // when the file was written

  // Whether both may be of one launch.
  bool may_be_same_launch(const Job& other) const {
    constexpr std::int64_t kSlack = 2'000'000'000;  // the clocks of two nodes may differ by so much
    if (!spawned && !other.spawned) {
      if (ranks != 0 && other.ranks != 0 && ranks != other.ranks) return false;
      if (agreed != 0 && other.agreed != 0) return agreed == other.agreed;
    }
    return started <= other.written + kSlack && other.started <= written + kSlack;
  }
};

}  // namespace farside

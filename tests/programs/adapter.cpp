// SPDX-License-Identifier: BSD-3-Clause
// The operations of a network adapter alone: all threads of the target's process are stopped while an origin locks,
// puts, gets, adds, swaps and unlocks there. Then all ranks increment one counter under its lock.
//
//   adapter [rounds N] [needs target]
//
// rounds: increments per rank, 500 by default. needs target: no process is stopped.
#include <dirent.h>

#include <fstream>
#include <string>

#include "stopped.hpp"

namespace {

int rank;
int size;

void barrier() { CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD)); }

// Counts the threads of this process that have a name of farside.
int threads_of_farside() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  CHECK(tasks != nullptr);
  while (const dirent* task = readdir(tasks)) {
    std::string name;
    std::ifstream("/proc/self/task/" + std::string(task->d_name) + "/comm") >> name;
    count += name.starts_with("farside") ? 1 : 0;
  }
  closedir(tasks);
  return count;
}

struct Cells {
  long long put, sum, swapped, counted;
};
constexpr MPI_Aint kPut = 0, kSum = 1, kSwapped = 2, kCounted = 3;

void epoch(MPI_Win window, long long round) {
  long long seen = -1, before = -1, one = 1, next = round + 1;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
  CHECK_MPI(MPI_Put(&round, 1, MPI_LONG_LONG, 1, kPut, 1, MPI_LONG_LONG, window));
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_LONG_LONG, 1, kSum, MPI_SUM, window));
  CHECK_MPI(MPI_Win_flush(1, window));
  CHECK_EQ(before, round);
  CHECK_MPI(MPI_Compare_and_swap(&next, &round, &before, MPI_LONG_LONG, 1, kSwapped, window));
  CHECK_MPI(MPI_Get(&seen, 1, MPI_LONG_LONG, 1, kPut, 1, MPI_LONG_LONG, window));
  CHECK_MPI(MPI_Win_unlock(1, window));
  CHECK_EQ(before, round);
  CHECK_EQ(seen, round);
}

// All operations of the adapter. The connection is made before, so the target has nothing to accept.
void target_stopped(const check::Window& window, bool stop) {
  const std::vector<int> pids = check::pids_here();
  if (rank == 0 && size > 1) {
    epoch(window, 0);
    const auto rounds = [&] {
      for (long long round = 1; round < 100; ++round) epoch(window, round);
    };
    if (stop) {
      const check::Stopped stopped(pids[1]);
      rounds();
    } else {
      rounds();
    }
  }
  barrier();
  if (rank == 1) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window));
    CHECK_EQ(window.as<Cells>()->put, 99);
    CHECK_EQ(window.as<Cells>()->sum, 100);
    CHECK_EQ(window.as<Cells>()->swapped, 100);
    CHECK_MPI(MPI_Win_unlock(1, window));
  }
  barrier();
}

// Every rank, the target too, reads, adds and writes under the exclusive lock.
void count_together(const check::Window& window, int rounds) {
  const int target = size > 1 ? 1 : 0;
  for (int round = 0; round < rounds; ++round) {
    long long value = 0, one = 1;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    CHECK_MPI(MPI_Get(&value, 1, MPI_LONG_LONG, target, kCounted, 1, MPI_LONG_LONG, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    ++value;
    CHECK_MPI(MPI_Put(&value, 1, MPI_LONG_LONG, target, kCounted, 1, MPI_LONG_LONG, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
    // The same sum by an accumulate under a shared lock.
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_LONG_LONG, target, kSum, 1, MPI_LONG_LONG, MPI_SUM, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
  if (rank == target) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
    CHECK_EQ(window.as<Cells>()->counted, static_cast<long long>(size) * rounds);
    CHECK_EQ(window.as<Cells>()->sum, static_cast<long long>(size) * rounds + (size > 1 ? 100 : 0));
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  check::Window window(program.memory(), sizeof(Cells), sizeof(long long));
  *window.as<Cells>() = {};
  barrier();
  CHECK_EQ(threads_of_farside(), 1);
  check::section("all that the adapter does, while the target is stopped");
  target_stopped(window, !program.has("needs"));
  check::section("all ranks count under one lock");
  count_together(window, program.number("rounds", 500));
}

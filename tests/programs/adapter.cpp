// SPDX-License-Identifier: BSD-3-Clause
// The operations of a network adapter alone: all threads of the target's process are stopped while an origin locks,
// puts, gets, adds, swaps and unlocks there. Then all ranks increment one counter under its lock, and get into many
// buffers in one epoch.
//
//   adapter [rounds N] [gets N] [needs target]
//
// rounds: increments per rank, 500 by default. gets: gets per rank, 1,000 by default. needs target: no process is
// stopped.
#include <algorithm>
#include <cstdio>
#include <dirent.h>
#include <fstream>
#include <string>
#include <vector>

#include "notified_calls.hpp"
#include "stopped.hpp"

namespace {

int rank;
int size;

void barrier() { CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD)); }

// Counts the threads of this process that have a name of farside, without the one that sleeps until a signal comes (the
// tests ask for statistics).
int threads_of_farside() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  CHECK(tasks != nullptr);
  while (const dirent* task = readdir(tasks)) {
    std::string name;
    std::ifstream("/proc/self/task/" + std::string(task->d_name) + "/comm") >> name;
    count += name.starts_with("farside") && name != "farside-signals" ? 1 : 0;
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
  CHECK_MPI(MPIX_Put_notify(&round, 1, MPI_LONG_LONG, 1, kPut, 1, MPI_LONG_LONG, 0, window));
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
  CHECK_MPI(MPIX_Win_set_num_notify(window, MPI_INFO_NULL, 1));
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
    MPI_Count notified = 0;
    CHECK_MPI(MPIX_Win_get_notify_value(window, 0, &notified));
    CHECK_EQ(notified, 100);
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

// The memory that adapters have pinned for this process, in KiB.
long pinned() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmPin:")) return std::stol(line.substr(6));
  }
  return 0;
}

// In one fence epoch, all into different buffers, most of them small and on different pages. The pinned memory must not
// grow with the number of gets: a page per get would be 400 MB for 100,000. (libfabric keeps the registrations of up to
// 1,024 large buffers for later use: fi_mr(3), FI_MR_CACHE_MAX_COUNT.)
void get_much(check::Memory memory, long gets) {
  constexpr long kMostMore = 24 * 1024, kApart = 256, kLarge = 16 * 1024, kLargeEvery = 100;
  const check::Window window(memory, kLarge, 1);
  const auto source = static_cast<std::size_t>(kLarge);
  for (std::size_t i = 0; i < source; ++i) window.as<unsigned char>()[i] = static_cast<unsigned char>(i + 7U * rank);
  std::vector<unsigned char> into(static_cast<std::size_t>(gets * kApart + kLarge));
  const int target = (rank + 1) % size;
  CHECK_MPI(MPI_Win_fence(0, window));
  const long before = pinned();
  long most = before;
  for (long i = 0; i < gets; ++i) {
    const bool large = i % kLargeEvery == 0 && i + kLarge / kApart < gets;
    const int bytes = large ? static_cast<int>(kLarge) : 8;
    // What follows a large one is written by it; the small ones in its range are left out.
    if (!large && i % kLargeEvery < kLarge / kApart) continue;
    const MPI_Aint at = large ? 0 : i % (kLarge - 8);
    CHECK_MPI(
        MPI_Get(&into[static_cast<std::size_t>(i * kApart)], bytes, MPI_BYTE, target, at, bytes, MPI_BYTE, window));
    if (i % 1000 == 0) most = std::max(most, pinned());
  }
  most = std::max(most, pinned());
  CHECK_MPI(MPI_Win_fence(0, window));
  for (long i = 0; i < gets; ++i) {
    const bool large = i % kLargeEvery == 0 && i + kLarge / kApart < gets;
    if (!large && i % kLargeEvery < kLarge / kApart) continue;
    const long bytes = large ? kLarge : 8, at = large ? 0 : i % (kLarge - 8);
    for (long k = 0; k < bytes; ++k) {
      CHECK_EQ(into[static_cast<std::size_t>(i * kApart + k)],
               static_cast<unsigned char>(at + k + 7 * ((rank + 1) % size)));
    }
  }
  std::printf("rank %d: %ld KiB pinned before, at most %ld KiB more during %ld gets\n", rank, before, most - before,
              gets);
  CHECK(most - before <= kMostMore);
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  // Adapters combine integers only in windows of single elements.
  MPI_Info single;
  CHECK_MPI(MPI_Info_create(&single));
  CHECK_MPI(MPI_Info_set(single, "mpi_accumulate_granularity", "8"));
  check::Window window(program.memory(), sizeof(Cells), sizeof(long long), MPI_COMM_WORLD, single);
  CHECK_MPI(MPI_Info_free(&single));
  *window.as<Cells>() = {};
  barrier();
  // That of progress and, once the endpoint has connected to anything, that which opens endpoints.
  CHECK(threads_of_farside() >= 1 && threads_of_farside() <= 2);
  check::section("all that the adapter does, while the target is stopped");
  target_stopped(window, !program.has("needs"));
  check::section("all ranks count under one lock");
  count_together(window, program.number("rounds", 500));
  check::section("gets into many buffers in one epoch");
  get_much(program.memory(), program.number("gets", 1000));
}

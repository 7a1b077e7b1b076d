// SPDX-License-Identifier: BSD-3-Clause
// Exclusive locks exclude, shared ones share; locks on many targets, and of two windows.
#pragma once

#include <sched.h>

#include "common.hpp"

namespace passive {

inline void put_and_get(check::Memory memory) {
  constexpr int kInts = 2048;
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * kInts * size, sizeof(int));
  std::vector<int> out(kInts);
  std::vector<int> in(kInts);
  for (int kind : {MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE}) {
    for (int target = 0; target < size; ++target) {
      for (int i = 0; i < kInts; ++i) out[static_cast<std::size_t>(i)] = kind * 7 + target * kInts + i + rank;
      CHECK_MPI(MPI_Win_lock(kind, target, 0, window));
      CHECK_MPI(MPI_Put(out.data(), kInts, MPI_INT, target, kInts * rank, kInts, MPI_INT, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
      CHECK_MPI(MPI_Win_lock(kind, target, 0, window));
      CHECK_MPI(MPI_Get(in.data(), kInts, MPI_INT, target, kInts * rank, kInts, MPI_INT, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
      CHECK(in == out);
    }
  }
}

// The lock of a rank's own window orders its loads and stores with the puts of all ranks.
inline void own_window(check::Memory memory) {
  constexpr int kRounds = 100;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  const int target = (rank + 1) % size;
  for (int round = 0; round < kRounds; ++round) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window));
    ++*window.as<std::int64_t>();
    CHECK_MPI(MPI_Win_unlock(rank, window));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    add_one(window, target, 0);
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{2 * kRounds});
}

inline void mutual_exclusion(check::Memory memory) {
  constexpr int kRounds = 250;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  // All ranks at one target, then all ranks at every target in succession.
  for (int round = 0; round < kRounds; ++round) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
    add_one(window, 0, 0);
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  for (int round = 0; round < kRounds; ++round) {
    const int target = (rank + round) % size;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    add_one(window, target, 0);
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
  const std::int64_t mine = read_own(window, window.as<std::int64_t>());
  std::int64_t all = 0;
  CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  CHECK_EQ(all, std::int64_t{2} * kRounds * size);
}

// A writer sets all words to one value; a reader must never see two values. One rank after the other writes, the others
// read.
inline void readers_and_writers(check::Memory memory) {
  constexpr int kWords = 512;
  constexpr int kRounds = 120;
  check::Window window(memory, kWords * sizeof(std::int64_t), sizeof(std::int64_t));
  std::vector<std::int64_t> words(kWords);
  std::int64_t last = 0;
  const int target = size - 1;
  for (int round = 1; round <= kRounds; ++round) {
    const bool writes = rank == round % size;
    CHECK_MPI(MPI_Win_lock(writes ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, window));
    CHECK_MPI(MPI_Get(words.data(), kWords, MPI_INT64_T, target, 0, kWords, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    for (std::int64_t word : words) CHECK_EQ(word, words[0]);
    CHECK(words[0] >= last);
    if (writes) {
      std::fill(words.begin(), words.end(), words[0] + 1);
      // In two halves, the second first; a reader between the two would see different values.
      CHECK_MPI(MPI_Put(words.data() + kWords / 2, kWords / 2, MPI_INT64_T, target, kWords / 2, kWords / 2, MPI_INT64_T,
                        window));
      CHECK_MPI(MPI_Win_flush(target, window));
      sched_yield();
      CHECK_MPI(MPI_Put(words.data(), kWords / 2, MPI_INT64_T, target, 0, kWords / 2, MPI_INT64_T, window));
    }
    last = words[0];
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
  if (rank == target) CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds});
}

// All ranks hold a shared lock on rank 0 at the same time: each waits in a barrier until all hold it.
inline void shared_locks_share(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(std::int64_t)) * size, sizeof(std::int64_t));
  for (int round = 0; round < 20; ++round) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
    const std::int64_t value = round * 10 + rank;
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, 0, rank, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    barrier();
    std::vector<std::int64_t> seen(static_cast<std::size_t>(size));
    CHECK_MPI(MPI_Get(seen.data(), size, MPI_INT64_T, 0, 0, size, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_unlock(0, window));
    for (int i = 0; i < size; ++i) CHECK_EQ(seen[static_cast<std::size_t>(i)], std::int64_t{round * 10 + i});
    barrier();
  }
}

// Every rank takes exclusive locks on all targets, in the same order, and holds all of them.
inline void locks_on_all_targets(check::Memory memory) {
  constexpr int kRounds = 60;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  for (int round = 0; round < kRounds; ++round) {
    for (int target = 0; target < size; ++target) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    std::int64_t first = -1;
    for (int target = 0; target < size; ++target) {
      std::int64_t value = -1;
      CHECK_MPI(MPI_Get(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(target, window));
      if (target == 0) first = value;
      CHECK_EQ(value, first);
      add_one(window, target, 0);
    }
    // The order of unlocks differs from that of locks.
    for (int i = 0; i < size; ++i) CHECK_MPI(MPI_Win_unlock((rank + i) % size, window));
  }
  barrier();
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds} * size);
}

// Concurrent epochs with locks of different kinds on different targets.
inline void mixed_locks(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(std::int64_t)) * size, sizeof(std::int64_t));
  const std::int64_t value = 40 + rank;
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Win_lock(target == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, window));
  }
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, rank, 1, MPI_INT64_T, window));
  }
  for (int target = size - 1; target >= 0; --target) CHECK_MPI(MPI_Win_unlock(target, window));
  barrier();
  for (int origin = 0; origin < size; ++origin) {
    CHECK_EQ(read_own(window, window.as<std::int64_t>() + origin), std::int64_t{40 + origin});
  }
}

// MPI_MODE_NOCHECK asserts that no conflicting lock is held: a ring, and a lock_all of all ranks.
inline void without_check(check::Memory memory) {
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  const int target = (rank + 1) % size;
  for (int round = 0; round < 50; ++round) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, MPI_MODE_NOCHECK, window));
    add_one(window, target, 0);
    CHECK_MPI(MPI_Win_unlock(target, window));
    barrier();
    const std::int64_t one = 1;
    CHECK_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
    CHECK_MPI(MPI_Win_unlock_all(window));
    barrier();
  }
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{100});
}

// Thousands of epochs, most of them empty.
inline void empty_epochs(check::Memory memory) {
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  for (int round = 0; round < 500; ++round) {
    const int target = (rank + round) % size;
    CHECK_MPI(MPI_Win_lock(round % 3 == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
    if (round % 10 != 0) continue;
    CHECK_MPI(MPI_Win_lock_all(0, window));
    CHECK_MPI(MPI_Win_flush_all(window));
    CHECK_MPI(MPI_Win_unlock_all(window));
  }
}

// Two windows, locked in opposite orders: a lock belongs to one window.
inline void two_windows(check::Memory memory) {
  check::Window one(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  check::Window other(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  const int target = (rank + 1) % size;
  if (rank == 0) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, one));
  barrier();
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, other));
  add_one(other, target, 0);
  CHECK_MPI(MPI_Win_unlock(target, other));
  barrier();
  if (rank == 0) CHECK_MPI(MPI_Win_unlock(target, one));
  CHECK_EQ(read_own(other, other.as<std::int64_t>()), std::int64_t{1});
}

}  // namespace passive

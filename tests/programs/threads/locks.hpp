// SPDX-License-Identifier: BSD-3-Clause
// Threads with locks: on different targets, beside other calls, against lock_all.
#pragma once

#include "common.hpp"

namespace threads {

// A lock belongs to the rank, so two threads of one rank may not lock the same target, but may lock different targets
// concurrently.
inline void locks_on_different_targets(check::Memory memory) {
  constexpr int kRounds = 100;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  in_threads([&](int t) {
    for (int round = 0; round < kRounds; ++round) {
      for (int target = t; target < size; target += kThreads) {
        std::int64_t value = -1;
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
        CHECK_MPI(MPI_Get(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
        CHECK_MPI(MPI_Win_flush(target, window));
        ++value;
        CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
        CHECK_MPI(MPI_Win_unlock(target, window));
      }
    }
  });
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds} * size);
}

// The same while another thread makes calls that take the window's guard. Some of them are refused, whatever the others
// do. They leave the locks as they are.
inline void locks_beside_other_calls(check::Memory memory) {
  constexpr int kRounds = 600, kRefused = 5;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  std::atomic<int> locking = kThreads - 1;
  in_threads([&](int t) {
    if (t == 0) {
      for (int refused = 0; locking > 0; ++refused) {
        CHECK_MPI(MPI_Win_sync(window));
        if (refused >= kRefused) continue;
        CHECK_REFUSED(MPI_Win_complete(window), MPI_ERR_RMA_SYNC);
        // A negative number that is not MPI_PROC_NULL, which is -1 or -2.
        const int none = MPI_PROC_NULL == -1 ? -2 : -1;
        CHECK_REFUSED(MPI_Win_unlock(none, window), MPI_ERR_RANK);
        CHECK_REFUSED(MPI_Win_flush(none, window), MPI_ERR_RANK);
      }
      return;
    }
    for (int round = 0; round < kRounds; ++round) {
      for (int target = t - 1; target < size; target += kThreads - 1) {
        std::int64_t value = -1;
        CHECK_MPI(MPI_Win_lock(round % 3 == 0 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, window));
        CHECK_MPI(MPI_Get(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
        CHECK_MPI(MPI_Win_flush(target, window));
        ++value;
        if (round % 3 != 0) CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
        CHECK_MPI(MPI_Win_unlock(target, window));
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, MPI_PROC_NULL, 0, window));
        CHECK_MPI(MPI_Win_flush(MPI_PROC_NULL, window));
        CHECK_MPI(MPI_Win_unlock(MPI_PROC_NULL, window));
      }
    }
    --locking;
  });
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds} * 2 / 3 * size);
}

// One thread gets under a lock, and computes before it flushes. Meanwhile another one acquires and releases locks, and
// with them the global lock of the window, whose rank is that of the get in one of the passes. A flush returns when the
// get is complete, whatever the other thread sends to the same rank.
inline void gets_beside_locks(check::Memory memory) {
  if (size == 1) return;
  constexpr int kRounds = 60;
  constexpr long kLongest = 40'000;  // ns
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window));
  *window.as<std::int64_t>() = 100 + rank;
  CHECK_MPI(MPI_Win_unlock(rank, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  for (int target = 0; target < size; ++target) {
    std::atomic<bool> over = false;
    std::thread locks([&] {
      for (const int other = (target + 1) % size; !over;) {
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, other, 0, window));
        CHECK_MPI(MPI_Win_unlock(other, window));
      }
    });
    for (int round = 0; round < kRounds; ++round) {
      std::int64_t value = -1;
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
      CHECK_MPI(MPI_Get(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
      compute(kLongest * round / kRounds);
      CHECK_MPI(MPI_Win_flush(target, window));
      CHECK_EQ(value, std::int64_t{100 + target});
      CHECK_MPI(MPI_Win_unlock(target, window));
    }
    over = true;
    locks.join();
  }
}

// Threads begin to use a lock_all concurrently, each with another target; afterwards no lock is left.
inline void lock_all_by_threads(check::Memory memory) {
  constexpr int kRounds = 50;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  const std::int64_t one = 1;
  for (int round = 0; round < kRounds; ++round) {
    CHECK_MPI(MPI_Win_lock_all(0, window));
    in_threads([&](int t) {
      for (int i = 0; i < size; ++i)
        CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, (t + i) % size, 0, 1, MPI_INT64_T, MPI_SUM, window));
    });
    CHECK_MPI(MPI_Win_unlock_all(window));
    const int target = (rank + round) % size;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds} * kThreads * size);
}

// All threads of all ranks but the first lock a target of their own exclusively, so the threads of one rank hold and
// wait together. The first rank interferes with lock_all.
inline void locks_against_lock_all(check::Memory memory) {
  constexpr int kRounds = 200;
  check::Window window(memory, kThreads * sizeof(std::int64_t), sizeof(std::int64_t));
  const std::int64_t one = 1;
  if (rank == 0) {
    for (int round = 0; round < kRounds; ++round) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      for (int target = 0; target < size; ++target) {
        for (int word = 0; word < kThreads; ++word)
          CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, word, 1, MPI_INT64_T, MPI_SUM, window));
      }
      CHECK_MPI(MPI_Win_unlock_all(window));
      std::this_thread::yield();
    }
  } else {
    in_threads([&](int t) {
      for (int round = 0; round < kRounds && t < size; ++round) {
        std::int64_t values[kThreads] = {};
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, window));
        CHECK_MPI(MPI_Get(values, kThreads, MPI_INT64_T, t, 0, kThreads, MPI_INT64_T, window));
        CHECK_MPI(MPI_Win_flush(t, window));
        for (std::int64_t& value : values) ++value;
        CHECK_MPI(MPI_Put(values, kThreads, MPI_INT64_T, t, 0, kThreads, MPI_INT64_T, window));
        CHECK_MPI(MPI_Win_unlock(t, window));
      }
    });
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const int lockers = rank < kThreads ? size : 1;
  for (int word = 0; word < kThreads; ++word) {
    CHECK_EQ(read_own(window, window.as<std::int64_t>() + word), std::int64_t{kRounds} * lockers);
  }
}

}  // namespace threads

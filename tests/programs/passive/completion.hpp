// SPDX-License-Identifier: BSD-3-Clause
// The time at which operations under a lock take effect, and their visibility: flushes, epochs in one message, deferred
// locks.
#pragma once

#include <atomic>
#include <chrono>
#include <sched.h>

#include "common.hpp"

namespace passive {

// After a flush the data is at the target, and other ranks see it within the same epoch. After a local flush the buffer
// may be reused.
inline void flushes(check::Memory memory) {
  constexpr int kRounds = 50;
  check::Window window(memory, 3 * static_cast<MPI_Aint>(sizeof(std::int64_t)) * size, sizeof(std::int64_t));
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    std::int64_t value = round * 10 + rank;
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, next, rank, 1, MPI_INT64_T, window));
    if (round % 2 == 0)
      CHECK_MPI(MPI_Win_flush(next, window));
    else
      CHECK_MPI(MPI_Win_flush_all(window));
    barrier();
    std::int64_t seen = 0;
    CHECK_MPI(MPI_Get(&seen, 1, MPI_INT64_T, rank, previous, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush_local(rank, window));
    CHECK_EQ(seen, round * 10 + previous);
    CHECK_MPI(MPI_Get(&seen, 1, MPI_INT64_T, next, rank, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush_local_all(window));
    CHECK_EQ(seen, value);
    barrier();
  }
  // One buffer for many puts to different places.
  std::int64_t buffer = 0;
  for (int target = 0; target < size; ++target) {
    buffer = 7000 + 10 * rank + target;
    CHECK_MPI(MPI_Put(&buffer, 1, MPI_INT64_T, target, size + rank, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush_local(target, window));
    buffer = 8000 + 10 * rank + target;
    CHECK_MPI(MPI_Put(&buffer, 1, MPI_INT64_T, target, 2 * size + rank, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush_local_all(window));
    buffer = -1;
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  barrier();
  for (int origin = 0; origin < size; ++origin) {
    CHECK_EQ(read_own(window, window.as<std::int64_t>() + size + origin), std::int64_t{7000 + 10 * origin + rank});
    CHECK_EQ(read_own(window, window.as<std::int64_t>() + 2 * size + origin), std::int64_t{8000 + 10 * origin + rank});
  }
}

// A put passes a token round. The rank that waits for the token only loads its own memory and calls MPI_Win_sync. Data
// that was put and flushed before the token arrives before the token.
inline void passed_on_by_memory(check::Memory memory) {
  constexpr int kRounds = 20;
  check::Window window(memory, 16 * sizeof(std::int64_t), sizeof(std::int64_t));
  volatile std::int64_t* mine = window.as<std::int64_t>();
  const int next = (rank + 1) % size;
  CHECK_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window));
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    const auto pass_on = [&] {
      const std::int64_t data = round * 1000 + rank;
      CHECK_MPI(MPI_Put(&data, 1, MPI_INT64_T, next, 8, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(next, window));
      CHECK_MPI(MPI_Accumulate(&round, 1, MPI_INT64_T, next, 0, 1, MPI_INT64_T, MPI_REPLACE, window));
      CHECK_MPI(MPI_Win_flush(next, window));
    };
    if (rank == 0) pass_on();
    while (mine[0] != round) {
      CHECK_MPI(MPI_Win_sync(window));
      // Runtimes without asynchronous progress need a call now and then; farside does not.
      int flag = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
      sched_yield();
    }
    CHECK_MPI(MPI_Win_sync(window));
    CHECK_EQ(std::int64_t{mine[8]}, round * 1000 + (rank + size - 1) % size);
    if (rank != 0) pass_on();
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// Without a flush before the unlock, lock, operations and release may be one message. The puts of an exclusive epoch
// are visible as a whole to shared epochs, to the owner under a lock, and to other exclusive epochs.
inline void epochs_as_a_whole(check::Memory memory) {
  constexpr int kRounds = 300;
  constexpr MPI_Aint kFar = 40;
  check::Window window(memory, (kFar + 1) * static_cast<MPI_Aint>(sizeof(std::int64_t)), sizeof(std::int64_t));
  const std::int64_t one = 1;
  for (int round = 0; round < kRounds; ++round) {
    const int target = round % 3 == 2 ? (rank + 1) % size : 0;
    const int kind = (round + rank) % 2 == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED;
    std::int64_t first = -1;
    std::int64_t last = -2;
    CHECK_MPI(MPI_Win_lock(kind, target, 0, window));
    CHECK_MPI(MPI_Get(&first, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
    if (kind == MPI_LOCK_EXCLUSIVE) {
      const std::int64_t mark = std::int64_t{rank} * kRounds + round + 1;
      CHECK_MPI(MPI_Get(&last, 1, MPI_INT64_T, target, kFar, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(target, window));
      CHECK_MPI(MPI_Put(&mark, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Put(&mark, 1, MPI_INT64_T, target, kFar, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
    } else {
      CHECK_MPI(MPI_Get(&last, 1, MPI_INT64_T, target, kFar, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
    }
    CHECK_EQ(first, last);
    CHECK_MPI(MPI_Win_lock(round % 2 == 0 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, rank, 0, window));
    CHECK_EQ(window.as<std::int64_t>()[0], window.as<std::int64_t>()[kFar]);
    CHECK_MPI(MPI_Win_unlock(rank, window));
    // An epoch of puts alone; the data is checked by later epochs.
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, target, kFar, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
  std::int64_t counted = read_own(window, window.as<std::int64_t>() + 1);
  CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &counted, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  CHECK_EQ(counted, std::int64_t{kRounds} * size);
}

// If all ranks take two locks in the same order, they may use them in any order without a deadlock.
inline void two_locks_in_one_order(check::Memory memory) {
  constexpr int kRounds = 60;
  if (size == 1) return;
  check::Window one(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  check::Window other(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  for (int round = 0; round < kRounds; ++round) {
    const MPI_Win second = round % 2 == 0 ? one : other;
    const int kind = round % 4 < 2 || rank == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED;
    barrier();
    CHECK_MPI(MPI_Win_lock(kind, 0, 0, one));
    CHECK_MPI(MPI_Win_lock(kind, 1, 0, second));
    const auto use = [&](MPI_Win window, int target) {
      const std::int64_t step = 1;
      CHECK_MPI(MPI_Accumulate(&step, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_flush(target, window));
    };
    if (rank % 2 == 0) use(one, 0);
    use(second, 1);
    if (rank % 2 != 0) use(one, 0);
    if (round % 3 == 0) {
      CHECK_MPI(MPI_Win_unlock(0, one));
      CHECK_MPI(MPI_Win_unlock(1, second));
    } else {
      CHECK_MPI(MPI_Win_unlock(1, second));
      CHECK_MPI(MPI_Win_unlock(0, one));
    }
  }
  barrier();
  if (rank == 0) CHECK_EQ(read_own(one, one.as<std::int64_t>()), std::int64_t{kRounds} * size);
  if (rank == 1) CHECK_EQ(read_own(one, one.as<std::int64_t>()), std::int64_t{kRounds / 2} * size);
  if (rank == 1) CHECK_EQ(read_own(other, other.as<std::int64_t>()), std::int64_t{kRounds / 2} * size);
}

// If the lock call does not wait, the operations under the lock wait for the lock. A notification meanwhile (post) must
// not send any of these operations.
inline void notification_beside_a_lock(check::Memory memory) {
  constexpr int kRounds = 6;
  if (size == 1) return;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  check::Window other(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  const check::Group zero({0});
  const check::Group one({1});
  CHECK_MPI(MPI_Win_lock_all(0, other));
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    if (rank == 1) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
    barrier();
    if (rank == 0) {
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
      CHECK_MPI(MPI_Put(&round, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_post(one, 0, window));
      // When this put has arrived, the notification has arrived, too.
      CHECK_MPI(MPI_Put(&round, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, other));
      CHECK_MPI(MPI_Win_flush(1, other));
      CHECK_MPI(MPI_Send(&round, 1, MPI_INT64_T, 1, 0, MPI_COMM_WORLD));
      CHECK_MPI(MPI_Win_unlock(1, window));
      CHECK_MPI(MPI_Win_wait(window));
    } else if (rank == 1) {
      const auto begun = std::chrono::steady_clock::now();
      for (int posted = 0; posted == 0 && std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(20);) {
        CHECK_MPI(MPI_Iprobe(0, 0, MPI_COMM_WORLD, &posted, MPI_STATUS_IGNORE));
        CHECK_EQ(std::atomic_ref(*window.as<std::int64_t>()).load(), round - 1);
      }
      CHECK_EQ(std::atomic_ref(*window.as<std::int64_t>()).load(), round - 1);
      CHECK_MPI(MPI_Win_unlock(1, window));
      std::int64_t value = 0;
      CHECK_MPI(MPI_Recv(&value, 1, MPI_INT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK_MPI(MPI_Win_start(zero, 0, window));
      CHECK_MPI(MPI_Win_complete(window));
    }
    // The next lock of rank 1 could precede this one of rank 0.
    barrier();
  }
  CHECK_MPI(MPI_Win_unlock_all(other));
  barrier();
  if (rank == 1) CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds});
}

}  // namespace passive

// SPDX-License-Identifier: BSD-3-Clause
// lock_all beside locks of both kinds.
#pragma once

#include <sched.h>
#include <time.h>

#include "common.hpp"

namespace passive {

// All ranks hold lock_all at the same time. Then lock_all competes with exclusive locks: an accumulate under lock_all
// and a get-add-put under an exclusive lock must exclude each other.
inline void lock_all_and_exclusive(check::Memory memory) {
  constexpr int kRounds = 100;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  barrier();
  CHECK_MPI(MPI_Win_unlock_all(window));
  const std::int64_t one = 1;
  for (int round = 0; round < kRounds; ++round) {
    if ((round + rank) % 2 == 0) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      for (int target = 0; target < size; ++target) {
        CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
      }
      CHECK_MPI(MPI_Win_unlock_all(window));
    } else {
      for (int target = 0; target < size; ++target) {
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
        add_one(window, target, 0);
        CHECK_MPI(MPI_Win_unlock(target, window));
      }
    }
  }
  barrier();
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds} * size);
}

// A rank under lock_all loads and stores its own window without any call; a peer's exclusive lock waits for it.
inline void lock_all_and_own_stores(check::Memory memory) {
  constexpr int kRounds = 4;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  volatile std::int64_t* mine = window.as<std::int64_t>();
  const int locker = size - 1;
  for (int round = 0; round < kRounds && size > 1; ++round) {
    if (rank == 0) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      const std::int64_t before = *mine;
      CHECK_MPI(MPI_Send(nullptr, 0, MPI_BYTE, locker, 5, MPI_COMM_WORLD));
      const timespec time{0, 50'000'000};  // enough to expose a lock that does not wait
      nanosleep(&time, nullptr);
      *mine = before + 1;
      CHECK_MPI(MPI_Win_unlock_all(window));
    } else if (rank == locker) {
      CHECK_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
      add_one(window, 0, 0);
      CHECK_MPI(MPI_Win_unlock(0, window));
    }
    barrier();
    if (rank == 0) CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{2} * (round + 1));
  }
}

// Half the ranks use all targets under lock_all, each in another order; the others lock one target each exclusively. If
// lock_all locked the targets in the order of use, two of the first could wait for each other behind writers.
inline void lock_all_in_different_orders(check::Memory memory) {
  constexpr int kRounds = 60;
  check::Window window(memory, 2 * sizeof(std::int64_t), sizeof(std::int64_t));
  const std::int64_t one = 1;
  for (int round = 0; round < kRounds; ++round) {
    if (rank < (size + 1) / 2) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      for (int i = 0; i < size; ++i) {
        const int target = rank % 2 == 0 ? i : size - 1 - i;
        CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
        CHECK_MPI(MPI_Win_flush(target, window));
        sched_yield();
      }
      CHECK_MPI(MPI_Win_unlock_all(window));
    } else {
      const int target = size - 1 - rank;
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
      add_one(window, target, 1);
      CHECK_MPI(MPI_Win_unlock(target, window));
    }
  }
  barrier();
  const int writers = rank < size / 2 ? 1 : 0;
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds} * ((size + 1) / 2));
  CHECK_EQ(read_own(window, window.as<std::int64_t>() + 1), std::int64_t{kRounds} * writers);
}

// All kinds of locks together. Each target has a pair of words that only exclusive locks change, one after the other;
// all other locks must find the two equal. Every lock_all and shared lock increments a counter.
inline void locks_of_all_kinds(check::Memory memory) {
  constexpr int kRounds = 60;
  check::Window window(memory, 3 * sizeof(std::int64_t), sizeof(std::int64_t));
  const std::int64_t one = 1;
  std::int64_t pair[2] = {};
  const auto look = [&](int target) {
    CHECK_MPI(MPI_Get(pair, 2, MPI_INT64_T, target, 0, 2, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    CHECK_EQ(pair[0], pair[1]);
  };
  const auto count = [&](int target) {
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 2, 1, MPI_INT64_T, MPI_SUM, window));
  };
  std::int64_t changes = 0;  // by this rank at all targets
  std::int64_t counts = 0;
  unsigned random = 17U + static_cast<unsigned>(rank);
  for (int round = 0; round < kRounds; ++round) {
    random = random * 1664525U + 1013904223U;
    const int target = static_cast<int>((random >> 8) % static_cast<unsigned>(size));
    switch ((random >> 24) % 4) {
      case 0:
        CHECK_MPI(MPI_Win_lock_all(0, window));
        for (int each = 0; each < size; ++each) {
          look(each);
          count(each);
          ++counts;
        }
        look(target);
        CHECK_MPI(MPI_Win_unlock_all(window));
        break;
      case 1:
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
        look(target);
        count(target);
        ++counts;
        sched_yield();
        look(target);
        CHECK_MPI(MPI_Win_unlock(target, window));
        break;
      case 2:
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
        add_one(window, target, 0);
        CHECK_MPI(MPI_Win_flush(target, window));
        sched_yield();
        add_one(window, target, 1);
        CHECK_MPI(MPI_Win_unlock(target, window));
        ++changes;
        break;
      default:
        // Nested locks, the outer one released first. They are taken in the order of ranks to avoid deadlocks.
        for (int each = target; each < size && each < target + 2; ++each) {
          CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, each, 0, window));
        }
        for (int each = target; each < size && each < target + 2; ++each) {
          add_one(window, each, 0);
          CHECK_MPI(MPI_Win_flush(each, window));
          add_one(window, each, 1);
          ++changes;
          CHECK_MPI(MPI_Win_unlock(each, window));
          sched_yield();
        }
    }
  }
  barrier();
  const std::int64_t mine[3] = {read_own(window, window.as<std::int64_t>()),
                                read_own(window, window.as<std::int64_t>() + 1),
                                read_own(window, window.as<std::int64_t>() + 2)};
  CHECK_EQ(mine[0], mine[1]);
  const std::int64_t own[4] = {changes, counts, mine[0], mine[2]};
  std::int64_t all[4] = {};
  CHECK_MPI(MPI_Allreduce(own, all, 4, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  CHECK_EQ(all[0], all[2]);
  CHECK_EQ(all[1], all[3]);
}

// Two ranks repeatedly expose their windows to each other, while the other ranks use lock_all and access each other's
// windows. Neither is ever refused. (Casper does so.)
inline void lock_all_beside_exposures(check::Memory memory) {
  constexpr int kRounds = 200;
  if (size < 4) return;
  check::Window window(memory, static_cast<MPI_Aint>(size) * 8, sizeof(std::int64_t));
  const std::int64_t one = 1;
  if (rank < 2) {
    const check::Group peer({1 - rank});
    for (int round = 0; round < kRounds; ++round) {
      CHECK_MPI(MPI_Win_post(peer, 0, window));
      CHECK_MPI(MPI_Win_start(peer, 0, window));
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 1 - rank, rank, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_complete(window));
      CHECK_MPI(MPI_Win_wait(window));
    }
  } else {
    for (int round = 0; round < kRounds; ++round) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      for (int target = 2; target < size; ++target) {
        CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, rank, 1, MPI_INT64_T, MPI_SUM, window));
      }
      CHECK_MPI(MPI_Win_unlock_all(window));
    }
  }
  barrier();
  for (int from = 0; from < size; ++from) {
    const bool counts = rank < 2 ? from == 1 - rank : from >= 2;
    CHECK_EQ(read_own(window, window.as<std::int64_t>() + from), std::int64_t{counts ? kRounds : 0});
  }
  barrier();
}

}  // namespace passive

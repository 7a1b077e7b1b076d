// SPDX-License-Identifier: BSD-3-Clause
// Calls beside a thread that waits for a lock, a start or the end of an exposure.
#pragma once

#include "common.hpp"

namespace threads {

// A thread waits in `acquire` for rank 1. `probe` opens and closes an epoch of its own and returns false if that is
// refused, so this thread knows when the other one waits. Then `others` makes calls that must be refused, a message
// asks rank 1 to end the wait, and `use` runs in the thread that waited.
inline void while_a_thread_waits(const std::function<int()>& acquire, const std::function<bool()>& probe,
                                 const std::function<void()>& others, const std::function<void()>& use) {
  std::thread waits([&] {
    // A probe may cause a refusal.
    while (acquire() != MPI_SUCCESS) std::this_thread::yield();
    use();
  });
  while (probe()) std::this_thread::yield();
  others();
  CHECK_MPI(MPI_Send(nullptr, 0, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
  waits.join();
}

inline void await_rank_0() { CHECK_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE)); }

// Opens an epoch that waits for nothing. Returns false if another epoch is open or waited for.
inline bool opens_an_epoch(MPI_Win window) {
  if (MPI_Win_lock_all(MPI_MODE_NOCHECK, window) != MPI_SUCCESS) return false;
  CHECK_MPI(MPI_Win_unlock_all(window));
  return true;
}

// Calls that are refused while another thread waits for a lock, or for lock_all, change nothing: that thread acquires
// the lock, uses it and releases it, and the next lock succeeds as well.
inline void calls_beside_a_lock_that_waits(check::Memory memory) {
  if (size == 1) return;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  if (rank == 0) CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const std::int64_t one = 1;
  const auto add = [&] { return MPI_Accumulate(&one, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, MPI_SUM, window); };
  const auto must_be_refused = [&] {
    CHECK_REFUSED(add(), MPI_ERR_RMA_SYNC);
    CHECK_REFUSED(MPI_Win_flush(1, window), MPI_ERR_RMA_SYNC);
    CHECK_REFUSED(MPI_Win_flush_all(window), MPI_ERR_RMA_SYNC);
    CHECK_REFUSED(MPI_Win_unlock(1, window), MPI_ERR_RMA_SYNC);
    CHECK_REFUSED(MPI_Win_unlock_all(window), MPI_ERR_RMA_SYNC);
    CHECK_REFUSED(MPI_Win_lock_all(0, window), MPI_ERR_RMA_SYNC);
    CHECK_REFUSED(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window), MPI_ERR_RMA_SYNC);
    CHECK_REFUSED(MPI_Win_fence(0, window), MPI_ERR_RMA_SYNC);
    CHECK_REFUSED(MPI_Win_complete(window), MPI_ERR_RMA_SYNC);
    MPI_Win same = window;
    CHECK_REFUSED(MPI_Win_free(&same), MPI_ERR_RMA_SYNC);
  };
  for (const int kind : std::initializer_list<int>{MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE, 0}) {
    const bool all = kind == 0;
    if (rank == 1) {
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
      await_rank_0();
      CHECK_MPI(MPI_Win_unlock(1, window));
    } else {
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    if (rank == 0) {
      while_a_thread_waits([&] { return all ? MPI_Win_lock_all(0, window) : MPI_Win_lock(kind, 1, 0, window); },
                           [&] { return opens_an_epoch(window); }, must_be_refused,
                           [&] {
                             CHECK_MPI(add());
                             CHECK_MPI(MPI_Win_flush(1, window));
                             CHECK_MPI(all ? MPI_Win_unlock_all(window) : MPI_Win_unlock(1, window));
                           });
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
    CHECK_MPI(MPI_Win_unlock(1, window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  if (rank == 1) CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{3});
}

// The same for a start whose target has not posted yet. Of two threads that wait for the end of one exposure, one is
// refused, and the other returns when the origin has completed.
inline void calls_beside_a_start_and_a_wait(check::Memory memory) {
  if (size == 1) return;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  if (rank == 0) CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const check::Group peer({1 - rank % 2});
  const std::int64_t value = 18;
  const auto put = [&] { return MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, window); };
  if (rank == 0) {
    while_a_thread_waits([&] { return MPI_Win_start(peer, 0, window); },
                         [&] {
                           if (MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOCHECK, window) != MPI_SUCCESS) return false;
                           CHECK_MPI(MPI_Win_unlock(0, window));
                           return true;
                         },
                         [&] {
                           CHECK_REFUSED(put(), MPI_ERR_RMA_SYNC);
                           CHECK_REFUSED(MPI_Win_complete(window), MPI_ERR_RMA_SYNC);
                           CHECK_REFUSED(MPI_Win_start(peer, 0, window), MPI_ERR_RMA_SYNC);
                         },
                         [&] {
                           CHECK_MPI(put());
                           CHECK_MPI(MPI_Win_complete(window));
                         });
    CHECK_MPI(MPI_Win_post(peer, 0, window));
    const auto wait = [&] {
      const int code = MPI_Win_wait(window);
      if (code == MPI_SUCCESS) return;
      CHECK_REFUSED(code, MPI_ERR_RMA_SYNC);
      int flag = 1;
      CHECK_REFUSED(MPI_Win_test(window, &flag), MPI_ERR_RMA_SYNC);
      CHECK_MPI(MPI_Send(nullptr, 0, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
    };
    std::thread other(wait);
    wait();
    other.join();
  } else if (rank == 1) {
    await_rank_0();
    CHECK_MPI(MPI_Win_post(peer, 0, window));
    CHECK_MPI(MPI_Win_wait(window));
    CHECK_EQ(*window.as<std::int64_t>(), std::int64_t{18});
    CHECK_MPI(MPI_Win_start(peer, 0, window));
    await_rank_0();
    CHECK_MPI(MPI_Win_complete(window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

}  // namespace threads

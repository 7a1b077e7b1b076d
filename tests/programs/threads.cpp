// SPDX-License-Identifier: BSD-3-Clause
// MPI_THREAD_MULTIPLE: the threads of a rank concurrently make, use and free windows of their own, work on one window,
// each by other operations, hold locks on different targets, and complete requests that other threads have made.
//
//   threads [allocate | create] [at_once]     (at_once: threads make even the program's first windows concurrently)
#include <chrono>
#include <functional>
#include <pthread.h>
#include <thread>
#include <time.h>

#include "check.hpp"

namespace {

int rank;
int size;
constexpr int kThreads = 4;

// Runs work(0) to work(kThreads - 1), each in a thread of its own.
void in_threads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& each : threads) each.join();
}

void compute(long nanoseconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
  while (std::chrono::steady_clock::now() < until) {
  }
}

std::int64_t read_own(MPI_Win window, const std::int64_t* at) {
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  const std::int64_t value = *at;
  CHECK_MPI(MPI_Win_unlock(rank, window));
  return value;
}

// A thread of rank 0 waits in a collective that the others join only after the put. No part of a put, not even of the
// first one of the program, may wait for that thread. This section is therefore the first.
void beside_a_collective(check::Memory memory) {
  if (size == 1) return;
  MPI_Comm comm;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  const auto make_another = [] {
    MPI_Comm another;
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &another));
    CHECK_MPI(MPI_Comm_free(&another));
  };
  {
    check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t), comm);
    if (rank == 0) {
      std::thread waits(make_another);
      const timespec time{0, 50'000'000};  // the thread enters the collective meanwhile
      nanosleep(&time, nullptr);
      const std::int64_t value = 17;
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window));
      CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_unlock(1, window));
      CHECK_MPI(MPI_Send(nullptr, 0, MPI_BYTE, 1, 6, comm));
      waits.join();
    } else {
      if (rank == 1) CHECK_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, 0, 6, comm, MPI_STATUS_IGNORE));
      make_another();
    }
    if (rank == 1) CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{17});
  }
  CHECK_MPI(MPI_Comm_free(&comm));
}

void windows_of_their_own(check::Memory memory) {
  constexpr int kRounds = 20;
  std::array<MPI_Comm, kThreads> comms{};
  for (MPI_Comm& comm : comms) CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  in_threads([&](int t) {
    const std::int64_t one = 1;
    for (int round = 0; round < kRounds; ++round) {
      check::Window window(memory, 64, sizeof(std::int64_t), comms[static_cast<std::size_t>(t)]);
      const auto* mine = window.as<std::int64_t>();
      CHECK_MPI(MPI_Win_fence(0, window));
      for (int target = 0; target < size; ++target)
        CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
      CHECK_EQ(mine[0], std::int64_t{size});
      CHECK_MPI(MPI_Win_lock_all(0, window));
      for (int target = 0; target < size; ++target)
        CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_unlock_all(window));
      CHECK_MPI(MPI_Barrier(comms[static_cast<std::size_t>(t)]));
      CHECK_EQ(read_own(window, mine + 1), std::int64_t{size});
    }
  });
  for (MPI_Comm& comm : comms) CHECK_MPI(MPI_Comm_free(&comm));
}

struct Place {
  std::int32_t count;
  std::int64_t swapped;
  long double sum;
  double many[16];
};

// Each thread has its place and its kind of operation; all threads access all targets.
void one_window(check::Memory memory) {
  constexpr int kRounds = 100;
  check::Window window(memory, sizeof(Place), 1);
  const auto at = [](std::size_t offset) { return static_cast<MPI_Aint>(offset); };
  const auto add_int = [&](int target) {
    const std::int32_t one = 1;
    CHECK_MPI(
        MPI_Accumulate(&one, 1, MPI_INT32_T, target, at(offsetof(Place, count)), 1, MPI_INT32_T, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush(target, window));
  };
  const auto add_long_double = [&](int target) {
    const long double half = 0.5L;
    CHECK_MPI(MPI_Accumulate(&half, 1, MPI_LONG_DOUBLE, target, at(offsetof(Place, sum)), 1, MPI_LONG_DOUBLE, MPI_SUM,
                             window));
    CHECK_MPI(MPI_Win_flush_local(target, window));
  };
  const auto raise_by_swaps = [&](int target) {
    for (std::int64_t expected = 0, seen = -1;; expected = seen) {
      const std::int64_t wanted = expected + 1;
      CHECK_MPI(
          MPI_Compare_and_swap(&wanted, &expected, &seen, MPI_INT64_T, target, at(offsetof(Place, swapped)), window));
      CHECK_MPI(MPI_Win_flush(target, window));
      if (seen == expected) break;
    }
  };
  const auto fetch_and_add = [&](int target) {
    const std::array<double, 16> ones = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static std::array<double, 4> last{};  // of this thread, per target
    std::array<double, 16> seen{};
    CHECK_MPI(MPI_Get_accumulate(ones.data(), 16, MPI_DOUBLE, seen.data(), 16, MPI_DOUBLE, target,
                                 at(offsetof(Place, many)), 16, MPI_DOUBLE, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush_all(window));
    // The value has grown since this thread's previous addition.
    double& before = last[static_cast<std::size_t>(target) % 4];
    CHECK(seen[0] >= before);
    before = seen[0] + 1;
  };
  const std::array<std::function<void(int)>, kThreads> kinds = {add_int, add_long_double, raise_by_swaps,
                                                                fetch_and_add};
  CHECK_MPI(MPI_Win_lock_all(0, window));
  in_threads([&](int t) {
    for (int round = 0; round < kRounds; ++round) {
      for (int target = 0; target < size; ++target) kinds[static_cast<std::size_t>(t)](target);
    }
  });
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  const auto* mine = window.as<Place>();
  CHECK_EQ(mine->count, kRounds * size);
  CHECK_EQ(mine->swapped, std::int64_t{kRounds} * size);
  CHECK_EQ(mine->sum, 0.5L * kRounds * size);
  for (double each : mine->many) CHECK_EQ(each, 1.0 * kRounds * size);
  CHECK_MPI(MPI_Win_unlock(rank, window));
}

// Threads put rows, each with a request, and get them back. A thread completes the requests of the next thread, by
// another kind of call in each round. Thread 0 also frees windows of its own with a request that an unlock has
// completed and that no call has seen.
void requests_of_other_threads(check::Memory memory) {
  constexpr int kRounds = 40, kRows = 12, kLength = 16;
  check::Window window(memory, sizeof(std::int64_t) * kThreads * kRows * kLength, sizeof(std::int64_t));
  using Row = std::array<std::int64_t, kLength>;
  struct Batch {
    std::array<Row, kRows> sent{}, received{};
    std::vector<MPI_Request> requests;
  };
  std::array<Batch, kThreads> batches;
  const auto complete = [](std::vector<MPI_Request>& requests, int how) {
    const int count = static_cast<int>(requests.size());
    std::vector<int> indices(requests.size());
    int done = 0, index = 0;
    switch (how % 5) {
      case 0: CHECK_MPI(MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE)); break;
      case 1:
        for (MPI_Request& request : requests) CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        break;
      case 2:
        for (int i = 0; i < count; ++i) CHECK_MPI(MPI_Waitany(count, requests.data(), &index, MPI_STATUS_IGNORE));
        break;
      case 3:
        while (done != MPI_UNDEFINED)
          CHECK_MPI(MPI_Testsome(count, requests.data(), &done, indices.data(), MPI_STATUSES_IGNORE));
        break;
      default:
        while (done == 0) CHECK_MPI(MPI_Testall(count, requests.data(), &done, MPI_STATUSES_IGNORE));
    }
    for (const MPI_Request request : requests) CHECK(request == MPI_REQUEST_NULL);
  };
  // The thread sanitizer knows this barrier also in a program that it does not instrument.
  pthread_barrier_t together;
  pthread_barrier_init(&together, nullptr, kThreads);
  MPI_Comm comm;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  const int target = (rank + 1) % size;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  in_threads([&](int t) {
    Batch& own = batches[static_cast<std::size_t>(t)];
    Batch& other = batches[static_cast<std::size_t>((t + 1) % kThreads)];
    const auto issue = [&](bool put) {
      own.requests.assign(kRows, MPI_REQUEST_NULL);
      for (int i = 0; i < kRows; ++i) {
        const auto row = static_cast<std::size_t>(i);
        const MPI_Aint at = (t * kRows + i) * kLength;
        CHECK_MPI(put ? MPI_Rput(own.sent[row].data(), kLength, MPI_INT64_T, target, at, kLength, MPI_INT64_T, window,
                                 &own.requests[row])
                      : MPI_Rget(own.received[row].data(), kLength, MPI_INT64_T, target, at, kLength, MPI_INT64_T,
                                 window, &own.requests[row]));
      }
    };
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kRows; ++i)
        own.sent[static_cast<std::size_t>(i)].fill(((round * 100 + rank) * 100 + t) * 100 + i);
      for (const bool put : {true, false}) {
        issue(put);
        pthread_barrier_wait(&together);
        complete(other.requests, round + t);
        if (put) CHECK_MPI(MPI_Win_flush(target, window));
        pthread_barrier_wait(&together);
      }
      CHECK(own.received == own.sent);
      if (t == 0) {
        MPI_Request request;
        {
          check::Window small(memory, sizeof(std::int64_t), sizeof(std::int64_t), comm);
          CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, small));
          CHECK_MPI(MPI_Rput(own.sent[0].data(), 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, small, &request));
          CHECK_MPI(MPI_Win_unlock(target, small));
        }
        CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      }
    }
  });
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Comm_free(&comm));
}

// A lock belongs to the rank, so two threads of one rank may not lock the same target, but may lock different targets
// concurrently.
void locks_on_different_targets(check::Memory memory) {
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
void locks_beside_other_calls(check::Memory memory) {
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
void gets_beside_locks(check::Memory memory) {
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

// Threads increment single elements, and one of them begins to add long rows to the same places. Several windows,
// because each window has only one such begin.
void rows_begin(check::Memory memory) {
  constexpr int kWindows = 10;
  constexpr int kTimes = 60;
  constexpr int kCount = 32;
  const std::vector<std::int64_t> ones(kCount, 1);
  for (int round = 0; round < kWindows; ++round) {
    check::Window window(memory, kCount * sizeof(std::int64_t), sizeof(std::int64_t));
    CHECK_MPI(MPI_Win_lock_all(0, window));
    in_threads([&](int t) {
      for (int i = 0; i < kTimes; ++i) {
        CHECK_MPI(MPI_Accumulate(ones.data(), 1, MPI_INT64_T, 0, i % kCount, 1, MPI_INT64_T, MPI_SUM, window));
        if (t != 0 || i < kTimes / 2) continue;
        CHECK_MPI(MPI_Accumulate(ones.data(), kCount, MPI_INT64_T, 0, 0, kCount, MPI_INT64_T, MPI_SUM, window));
      }
    });
    CHECK_MPI(MPI_Win_unlock_all(window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int k = 0; rank == 0 && k < kCount; ++k) {
      const int singles = kTimes / kCount + (k < kTimes % kCount ? 1 : 0);
      CHECK_EQ(read_own(window, window.as<std::int64_t>() + k), std::int64_t{singles * kThreads + kTimes / 2} * size);
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
}

// Threads begin to use a lock_all concurrently, each with another target; afterwards no lock is left.
void lock_all_by_threads(check::Memory memory) {
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
void locks_against_lock_all(check::Memory memory) {
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

// A thread waits in `acquire` for rank 1. `probe` opens and closes an epoch of its own and returns false if that is
// refused, so this thread knows when the other one waits. Then `others` makes calls that must be refused, a message
// asks rank 1 to end the wait, and `use` runs in the thread that waited.
void while_a_thread_waits(const std::function<int()>& acquire, const std::function<bool()>& probe,
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

void await_rank_0() { CHECK_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE)); }

// Opens an epoch that waits for nothing. Returns false if another epoch is open or waited for.
bool opens_an_epoch(MPI_Win window) {
  if (MPI_Win_lock_all(MPI_MODE_NOCHECK, window) != MPI_SUCCESS) return false;
  CHECK_MPI(MPI_Win_unlock_all(window));
  return true;
}

// Calls that are refused while another thread waits for a lock, or for lock_all, change nothing: that thread acquires
// the lock, uses it and releases it, and the next lock succeeds as well.
void calls_beside_a_lock_that_waits(check::Memory memory) {
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
void calls_beside_a_start_and_a_wait(check::Memory memory) {
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

// The accumulates that a thread's own object collects, and sends when the thread ends. It is made before farside's own
// objects of the thread, so it is destroyed after them.
struct Collected {
  ~Collected() {
    if (values.empty()) return;
    const auto count = static_cast<int>(values.size());
    CHECK_MPI(MPI_Accumulate(values.data(), count, MPI_INT64_T, target, 0, count, MPI_INT64_T, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush(target, window));
  }
  std::vector<std::int64_t> values;
  int target = 0;
  MPI_Win window = MPI_WIN_NULL;
};

void operations_at_the_end_of_a_thread(check::Memory memory) {
  constexpr int kEnding = 16, kWords = 500;
  const check::Window window(memory, kWords * 8, 8);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int i = 0; i < kEnding; ++i) {
    std::thread([&] {
      thread_local Collected collected;
      collected.target = (rank + 1) % size;
      collected.window = window;
      const std::int64_t one = 1;
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, collected.target, 0, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_flush(collected.target, window));
      collected.values.assign(kWords, 1);
    }).join();
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  CHECK_EQ(window.as<std::int64_t>()[0], std::int64_t{2 * kEnding});
  CHECK_EQ(window.as<std::int64_t>()[kWords - 1], std::int64_t{kEnding});
  CHECK_MPI(MPI_Win_unlock(rank, window));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv, MPI_THREAD_MULTIPLE);
  rank = check::rank();
  size = check::size();
  int level = MPI_THREAD_SINGLE;
  CHECK_MPI(MPI_Query_thread(&level));
  if (level < MPI_THREAD_MULTIPLE) {
    if (rank == 0) std::puts("skipped: this runtime does not provide MPI_THREAD_MULTIPLE");
    return check::kSkipped;
  }
  if (!program.has("at_once")) {
    check::section("a put beside a thread that waits in a collective");
    beside_a_collective(program.memory());
  }
  const check::Section<check::Memory> sections[] = {
      {"each thread with windows of its own", windows_of_their_own},
      {"threads with different operations on one window", one_window},
      {"requests that other threads complete", requests_of_other_threads},
      {"threads with locks on different targets", locks_on_different_targets},
      {"locks by threads beside other calls", locks_beside_other_calls},
      {"gets of one thread beside locks of another", gets_beside_locks},
      {"threads within one lock_all", lock_all_by_threads},
      {"a thread that begins to add long rows where others count", rows_begin},
      {"locks by threads against lock_all", locks_against_lock_all},
      {"calls beside a lock that waits", calls_beside_a_lock_that_waits},
      {"calls beside a start and a wait that wait", calls_beside_a_start_and_a_wait},
      {"operations at the end of a thread", operations_at_the_end_of_a_thread},
  };
  check::run(sections, program.memory());
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
// Threads with windows, operations and requests.
#pragma once

#include <pthread.h>
#include <time.h>

#include "common.hpp"

namespace threads {

// A thread of rank 0 waits in a collective that the others join only after the put. No part of a put, not even of the
// first one of the program, may wait for that thread. This section is therefore the first.
inline void beside_a_collective(check::Memory memory) {
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

inline void windows_of_their_own(check::Memory memory) {
  constexpr int kRounds = 6, kWindows = 3;
  std::array<MPI_Comm, kThreads> comms{};
  const std::int64_t one = 1;
  for (int round = 0; round < kRounds; ++round) {
    for (MPI_Comm& comm : comms) CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    in_threads([&](int t) {
      for (int made = 0; made < kWindows; ++made) {
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
}

struct Place {
  std::int32_t counts[7];  // every other one
  std::int64_t swapped;
  long double sum;
  double many[16];
};

// Each thread has its place and its kind of operation; all threads access all targets.
inline void one_window(check::Memory memory) {
  constexpr int kRounds = 100;
  check::Window window(memory, sizeof(Place), 1);
  const auto at = [](std::size_t offset) { return static_cast<MPI_Aint>(offset); };
  MPI_Datatype counts;
  CHECK_MPI(MPI_Type_vector(4, 1, 2, MPI_INT32_T, &counts));
  CHECK_MPI(MPI_Type_commit(&counts));
  const auto add_ints = [&](int target) {
    const std::array<std::int32_t, 4> ones = {1, 1, 1, 1};
    CHECK_MPI(
        MPI_Accumulate(ones.data(), 4, MPI_INT32_T, target, at(offsetof(Place, counts)), 1, counts, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush(target, window));
  };
  const auto add_long_double = [&](int target) {
    const long double half = 0.5L;
    CHECK_MPI(MPI_Accumulate(&half, 1, MPI_LONG_DOUBLE, target, at(offsetof(Place, sum)), 1, MPI_LONG_DOUBLE, MPI_SUM,
                             window));
    CHECK_MPI(MPI_Win_flush_local_all(window));
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
    static std::vector<double> last(static_cast<std::size_t>(size));  // of this thread, per target
    std::array<double, 16> seen{};
    CHECK_MPI(MPI_Get_accumulate(ones.data(), 16, MPI_DOUBLE, seen.data(), 16, MPI_DOUBLE, target,
                                 at(offsetof(Place, many)), 16, MPI_DOUBLE, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush_all(window));
    // The value has grown since this thread's previous addition.
    double& before = last[static_cast<std::size_t>(target)];
    CHECK(seen[0] >= before);
    before = seen[0] + 1;
  };
  const std::array<std::function<void(int)>, kThreads> kinds = {add_ints, add_long_double, raise_by_swaps,
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
  for (int i = 0; i < 7; ++i) CHECK_EQ(mine->counts[i], i % 2 == 0 ? kRounds * size : 0);
  CHECK_MPI(MPI_Type_free(&counts));
  CHECK_EQ(mine->swapped, std::int64_t{kRounds} * size);
  CHECK_EQ(mine->sum, 0.5L * kRounds * size);
  for (double each : mine->many) CHECK_EQ(each, 1.0 * kRounds * size);
  CHECK_MPI(MPI_Win_unlock(rank, window));
}

// Threads put rows, each with a request, and get them back. A thread completes the requests of the next thread, by
// another kind of call in each round. Thread 0 also frees windows of its own with a request that an unlock has
// completed and that no call has seen.
inline void requests_of_other_threads(check::Memory memory) {
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

// Threads increment single elements, and one of them begins to add long rows to the same places. Several windows,
// because each window has only one such begin.
inline void rows_begin(check::Memory memory) {
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

inline void operations_at_the_end_of_a_thread(check::Memory memory) {
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

}  // namespace threads

// SPDX-License-Identifier: BSD-3-Clause
// How many puts of 8 bytes per second one rank makes to another one, under MPI_Win_lock_all. Rank 0 prints
//
//   message_rate: 123456 puts/s with a flush after 64, 12345 with a flush after each
//
// and rank 1 checks that the last ones have arrived.
//
//   message_rate [puts N]   per kind of flush (default 20,000)
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "check.hpp"

namespace {

constexpr int kWords = 64;

// A barrier in which a rank sleeps, since the other one needs the processors.
void sleeping_barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Ibarrier(MPI_COMM_WORLD, &request));
  for (int over = 0; over == 0;) {
    CHECK_MPI(MPI_Test(&request, &over, MPI_STATUS_IGNORE));
    if (over == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Returns the puts per second. The last put to word i is of `first` + i.
double rate(MPI_Win window, int puts, int between_flushes, std::int64_t first) {
  std::array<std::int64_t, kWords> values{};
  for (int i = 0; i < kWords; ++i) values[static_cast<std::size_t>(i)] = first + i;
  const auto some = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const int word = i % kWords;
      CHECK_MPI(MPI_Put(&values[static_cast<std::size_t>(word)], 1, MPI_INT64_T, 1, word, 1, MPI_INT64_T, window));
      if ((i + 1) % between_flushes == 0) CHECK_MPI(MPI_Win_flush(1, window));
    }
  };
  some(4 * kWords);  // the connection is made
  const double begin = MPI_Wtime();
  some(puts);
  return puts / (MPI_Wtime() - begin);
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const int puts = program.number("puts", 20'000) / kWords * kWords;
  const check::Window window(program.memory(), kWords * MPI_Aint{8}, 8);
  // Both rates, from rank 0; and what rank 1 finds behind each.
  const auto measure = [&](int between_flushes, std::int64_t first) {
    double found = 0;
    if (check::rank() == 0) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      found = rate(window, puts, between_flushes, first);
      CHECK_MPI(MPI_Win_unlock_all(window));
    }
    sleeping_barrier();
    if (check::rank() == 1) {
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window));
      for (int i = 0; i < kWords; ++i) CHECK_EQ(window.as<std::int64_t>()[i], first + i);
      CHECK_MPI(MPI_Win_unlock(1, window));
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    return found;
  };
  const double many = measure(kWords, 1000), each = measure(1, 2000);
  if (check::rank() == 0)
    std::printf("message_rate: %.0f puts/s with a flush after %d, %.0f with a flush after each\n", many, kWords, each);
}

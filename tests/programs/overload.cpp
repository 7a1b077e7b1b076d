// SPDX-License-Identifier: BSD-3-Clause
// All other ranks issue operations to rank 0 at once, many between two flushes, so that queues and buffers of both
// sides are full: messages to the handler (accumulates of doubles), adapter atomics where there are any (accumulates of
// int64), puts and gets. All sums are exact.
//
//   overload [operations N]   of all ranks together (default 100,000)
//   overload all [rounds N]   every rank to every other rank, so that all connections are made at once
#include <algorithm>
#include <cstdio>
#include <vector>

#include "check.hpp"

namespace {

constexpr int kBetweenFlushes = 1000;

void overload(const check::Program& program, int operations) {
  const int senders = check::size() - 1, each = operations / senders;
  // At rank 0: a double and an int64 to which all add, and kBetweenFlushes words per other rank.
  const check::Window window(program.memory(), 8 * (2 + senders * MPI_Aint{kBetweenFlushes}), 8);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  const double half = 0.5;
  const std::int64_t one = 1;
  // An operand stays as it is until the next flush, and each put has a word of its own.
  std::vector<std::int64_t> put(kBetweenFlushes), got(kBetweenFlushes);
  const auto flush = [&] { CHECK_MPI(MPI_Win_flush(0, window)); };
  for (int i = 0; check::rank() > 0 && i < each; ++i) {
    const int slot = i % kBetweenFlushes;
    const auto at = static_cast<std::size_t>(slot);
    const MPI_Aint word = 2 + (check::rank() - 1) * MPI_Aint{kBetweenFlushes} + slot;
    switch (i % 4) {
      case 0: CHECK_MPI(MPI_Accumulate(&half, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, MPI_SUM, window)); break;
      case 1: CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, MPI_SUM, window)); break;
      case 2:
        put[at] = i;
        CHECK_MPI(MPI_Put(&put[at], 1, MPI_INT64_T, 0, word, 1, MPI_INT64_T, window));
        break;
      case 3: CHECK_MPI(MPI_Get(&got[at], 1, MPI_INT64_T, 0, word, 1, MPI_INT64_T, window)); break;
    }
    if (slot == kBetweenFlushes - 1) flush();
  }
  if (check::rank() > 0) flush();
  for (const std::int64_t each_got : got) CHECK_EQ(each_got, std::int64_t{0});  // nothing is put to those words
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() == 0) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
    const auto of_kind = [&](int kind) { return static_cast<std::int64_t>(senders) * ((each + 3 - kind) / 4); };
    CHECK_EQ(window.as<double>()[0], 0.5 * static_cast<double>(of_kind(0)));
    CHECK_EQ(window.as<std::int64_t>()[1], of_kind(1));
    for (int sender = 0; sender < senders; ++sender) {
      for (int slot = 2; slot < std::min(each, kBetweenFlushes); slot += 4) {
        const int rounds = (each - 1 - slot) / kBetweenFlushes;
        CHECK_EQ(window.as<std::int64_t>()[2 + sender * kBetweenFlushes + slot],
                 std::int64_t{slot} + std::int64_t{rounds} * kBetweenFlushes);
      }
    }
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
}

// Each rank begins with another target, else all would connect to the same one first. Rank 0 prints how long the first
// round took, in which the connections are made, and how long all.
void all_to_all(const check::Program& program, int rounds) {
  const int ranks = check::size(), others = ranks - 1;
  // A double and an int64 to which all add, and a word per rank.
  const check::Window window(program.memory(), 8 * (2 + MPI_Aint{ranks}), 8);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const double begin = MPI_Wtime();
  double first = 0;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  const double half = 0.5;
  const std::int64_t one = 1, mine = 1000 + check::rank();
  for (int round = 0; round < rounds; ++round) {
    for (int i = 1; i < ranks; ++i) {
      const int to = (check::rank() + i) % ranks;
      CHECK_MPI(MPI_Accumulate(&half, 1, MPI_DOUBLE, to, 0, 1, MPI_DOUBLE, MPI_SUM, window));
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, to, 1, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Put(&mine, 1, MPI_INT64_T, to, 2 + check::rank(), 1, MPI_INT64_T, window));
    }
    CHECK_MPI(MPI_Win_flush_all(window));
    if (round == 0) first = MPI_Wtime() - begin;
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  double slowest = 0;
  CHECK_MPI(MPI_Reduce(&first, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() == 0) {
    std::printf("%d ranks: the first round took %.2f s on the slowest rank, %d rounds %.2f s\n", ranks, slowest, rounds,
                MPI_Wtime() - begin);
  }
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, check::rank(), 0, window));
  CHECK_EQ(window.as<double>()[0], 0.5 * others * rounds);
  CHECK_EQ(window.as<std::int64_t>()[1], std::int64_t{others} * rounds);
  for (int r = 0; r < ranks; ++r) {
    if (r != check::rank()) CHECK_EQ(window.as<std::int64_t>()[2 + r], std::int64_t{1000} + r);
  }
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (program.has("all")) {
    all_to_all(program, program.number("rounds", 10));
  } else {
    overload(program, program.number("operations", 100'000));
  }
  return 0;
}

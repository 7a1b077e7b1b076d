// SPDX-License-Identifier: BSD-3-Clause
// Large numbers of ranks, windows, rounds or threads, with the time they take: every result is exact, and descriptors,
// threads and memory are as before.
//
//   load [create] ranks N       N rounds in which each rank locks, adds and puts at every other one: for many ranks
//   load [create] windows N     N windows at once, each used while all exist
//   load [create] rounds N      a window made, used and freed, N times
//   load [create] threads N     N operations by four threads in each rank, half of them sums, half puts
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "usage.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kThreads = 4;

// Adds at rank 0, and puts a word to the next rank.
void use(const check::Window& window, std::int64_t value) {
  const std::int64_t one = 1;
  std::int64_t before = -1;
  const int next = (check::rank() + 1) % check::size();
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, next, 1, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK(before >= 0 && before < check::size());
}

std::int64_t own(const check::Window& window, int place) {
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, check::rank(), 0, window));
  const std::int64_t value = window.as<std::int64_t>()[place];
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
  return value;
}

void check_used(const check::Window& window, std::int64_t value) {
  CHECK_EQ(own(window, 1), value);
  if (check::rank() == 0) CHECK_EQ(own(window, 0), std::int64_t{check::size()});
}

void ranks(const check::Program& program, int rounds) {
  const int size = check::size();
  const check::Window window(program.memory(), 8 * (2 + size), 8);
  const std::int64_t one = 1;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < size; ++i) {
      const int target = (check::rank() + i) % size;
      const std::int64_t value = 1000 * round + check::rank();
      std::int64_t counted = 0;
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
      CHECK_MPI(MPI_Get(&counted, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(target, window));
      ++counted;
      CHECK_MPI(MPI_Put(&counted, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, 2 + check::rank(), 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
    }
    CHECK_MPI(MPI_Win_fence(0, window));
    for (int i = 0; i < size; ++i) CHECK_EQ(window.as<std::int64_t>()[2 + i], std::int64_t{1000} * round + i);
    CHECK_EQ(window.as<std::int64_t>()[0], std::int64_t{size} * (round + 1));
    CHECK_EQ(window.as<std::int64_t>()[1], std::int64_t{size} * (round + 1));
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  }
}

void windows(const check::Program& program, int number) {
  { const check::Window first(program.memory(), 64, 8); }
  const check::Usage before = check::usage();
  {
    std::vector<std::unique_ptr<check::Window>> all;
    for (int i = 0; i < number; ++i) all.push_back(std::make_unique<check::Window>(program.memory(), 64, 8));
    const check::Usage meanwhile = check::usage();
    for (int i = 0; i < number; ++i) use(*all[static_cast<std::size_t>(i)], i);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < number; ++i) check_used(*all[static_cast<std::size_t>(i)], i);
    if (check::rank() == 0) {
      std::printf("%d windows: %.1f KiB resident, %.2f mappings, %.2f descriptors each\n", number,
                  static_cast<double>(meanwhile.kilobytes - before.kilobytes) / number,
                  static_cast<double>(meanwhile.mappings - before.mappings) / number,
                  static_cast<double>(meanwhile.descriptors - before.descriptors) / number);
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const check::Usage after = check::usage();
  CHECK_EQ(after.threads, before.threads);
  CHECK(after.descriptors <= before.descriptors + 2 * check::size());  // connections that are made at first use
}

void rounds(const check::Program& program, int number) {
  check::Usage before;
  const int warm_up = number / 10 + 1;
  for (int round = 0; round < number; ++round) {
    if (round == warm_up) before = check::usage();
    const check::Window window(program.memory(), 64, 8);
    use(window, round);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    check_used(window, round);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  check::same_usage(before, check::usage(), {.mappings = 8, .kilobytes = 32 << 10, .heap = 2048});
}

void threads(const check::Program& program, int number) {
  const int each = number / kThreads;
  const int size = check::size();
  // The window has 64 sums, and a word for each thread of each rank.
  const check::Window window(program.memory(), 8 * (64 + kThreads * size), 8);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  std::vector<std::thread> all;
  for (int t = 0; t < kThreads; ++t) {
    all.emplace_back([&, t] {
      std::minstd_rand random(static_cast<unsigned>(check::rank() * kThreads + t + 1));
      const std::int64_t one = 1;
      const int place = 64 + check::rank() * kThreads + t;
      std::int64_t values[64];
      for (int i = 0; i < each; ++i) {
        const int target = static_cast<int>(random() % static_cast<unsigned>(size));
        if (i % 2 == 0) {
          CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, static_cast<MPI_Aint>(random() % 64), 1, MPI_INT64_T,
                                   MPI_SUM, window));
        } else {
          // In the end the thread's word at every rank has the last number that the thread stored there.
          values[i / 2 % 64] = i;
          CHECK_MPI(
              MPI_Accumulate(&values[i / 2 % 64], 1, MPI_INT64_T, target, place, 1, MPI_INT64_T, MPI_REPLACE, window));
        }
        if (i % 64 == 63) CHECK_MPI(MPI_Win_flush_local_all(window));
      }
      const std::int64_t last = each;
      for (int target = 0; target < size; ++target) {
        CHECK_MPI(MPI_Accumulate(&last, 1, MPI_INT64_T, target, place, 1, MPI_INT64_T, MPI_REPLACE, window));
      }
      CHECK_MPI(MPI_Win_flush_all(window));
    });
  }
  for (std::thread& thread : all) thread.join();
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, check::rank(), 0, window));
  std::int64_t sum = 0, of_all = 0;
  for (int i = 0; i < 64; ++i) sum += window.as<std::int64_t>()[i];
  for (int i = 0; i < kThreads * size; ++i) CHECK_EQ(window.as<std::int64_t>()[64 + i], std::int64_t{each});
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
  CHECK_MPI(MPI_Allreduce(&sum, &of_all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  CHECK_EQ(of_all, std::int64_t{(each + 1) / 2} * kThreads * size);
}

constexpr struct {
  const char* name;
  void (*run)(const check::Program&, int);
} kLoads[] = {{"ranks", ranks}, {"windows", windows}, {"rounds", rounds}, {"threads", threads}};

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv, MPI_THREAD_MULTIPLE);
  for (const auto& [name, run] : kLoads) {
    if (!program.has(name)) continue;
    check::section(name);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const auto begin = Clock::now();
    run(program, program.number(name, 1));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (check::rank() == 0) std::printf("%s %d: %.2f s\n", name, program.number(name, 1), took.count());
  }
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
// Two windows with different ranks, used by turns: the ranks other than rank 1, then all ranks. tests/verbs takes the
// adapter from rank 1, so that a process uses two libfabric providers at once.
#include <list>

#include "check.hpp"

namespace {

constexpr int kRounds = 50;

// A window of the ranks of a communicator: a counter and a word per rank.
class Counted {
 public:
  Counted(const check::Program& program, MPI_Comm communicator)
      : communicator_(communicator), window_(program.memory(), 8 * MPI_Aint{1 + check::size()}, 8, communicator) {
    CHECK_MPI(MPI_Comm_rank(communicator, &rank_));
    CHECK_MPI(MPI_Comm_size(communicator, &ranks_));
    CHECK_MPI(MPI_Barrier(communicator));
  }

  // Counts at each rank, writes this rank's word there and reads it back.
  void round(std::int64_t value) {
    CHECK_MPI(MPI_Win_lock_all(0, window_));
    const std::int64_t one = 1;
    for (int target = 0; target < ranks_; ++target) {
      std::int64_t got = -1, before = -1;
      CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, 1 + rank_, 1, MPI_INT64_T, window_));
      CHECK_MPI(MPI_Win_flush(target, window_));
      CHECK_MPI(MPI_Get(&got, 1, MPI_INT64_T, target, 1 + rank_, 1, MPI_INT64_T, window_));
      CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, 0, MPI_SUM, window_));
      CHECK_MPI(MPI_Win_flush(target, window_));
      CHECK_EQ(got, value);
      CHECK(before >= counted_);
    }
    CHECK_MPI(MPI_Win_unlock_all(window_));
    ++counted_;
  }

  void finish() {
    CHECK_MPI(MPI_Barrier(communicator_));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank_, 0, window_));
    CHECK_EQ(window_.as<std::int64_t>()[0], counted_ * ranks_);
    CHECK_MPI(MPI_Win_unlock(rank_, window_));
  }

 private:
  MPI_Comm communicator_;
  check::Window window_;
  int rank_ = 0, ranks_ = 0;
  std::int64_t counted_ = 0;  // by this rank, at each rank
};

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const bool other = check::rank() == 1;
  MPI_Comm some = MPI_COMM_NULL, again = MPI_COMM_NULL;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, other ? MPI_UNDEFINED : 0, check::rank(), &some));
  {
    check::section("the first window, without rank 1");
    std::list<Counted> windows;
    if (!other) windows.emplace_back(program, some);
    for (int i = 0; i < kRounds && !other; ++i) windows.front().round(i);
    check::section("the second window, of all ranks");
    windows.emplace_back(program, MPI_COMM_WORLD);
    Counted& all = windows.back();
    for (int i = 0; i < kRounds; ++i) {
      if (!other) windows.front().round(100 + i);
      all.round(200 + i);
    }
    check::section("a third window, again without rank 1");
    if (!other) {
      CHECK_MPI(MPI_Comm_dup(some, &again));
      Counted& third = windows.emplace_back(program, again);
      for (int i = 0; i < kRounds; ++i) {
        third.round(300 + i);
        if (i % 10 == 0) windows.front().round(400 + i);
      }
    }
    check::section("the sums");
    for (Counted& each : windows) each.finish();
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  if (!other) {
    CHECK_MPI(MPI_Comm_free(&some));
    CHECK_MPI(MPI_Comm_free(&again));
  }
  return 0;
}

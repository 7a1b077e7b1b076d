// SPDX-License-Identifier: BSD-3-Clause
// Windows with different ranks, used by turns, in processes that may use two libfabric providers at once.
//
//   providers             a window of the ranks other than rank 1, then one of all ranks
//             all_first   the other way round
//             adapter     tests/system/verbs has taken the adapter from rank 1: windows have the best of their ranks
//   providers cut within N  4 ranks on 2 hosts: a window of ranks 0 and 2 uses the adapter when the cable goes dead
//                         (tests/system/verbs), and then one of all ranks is made, over tcp, within N seconds
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "check.hpp"
#include "stderr.hpp"

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
    std::int64_t all = 0;
    CHECK_MPI(MPI_Allreduce(&counted_, &all, 1, MPI_INT64_T, MPI_SUM, communicator_));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank_, 0, window_));
    CHECK_EQ(window_.as<std::int64_t>()[0], all);
    CHECK_MPI(MPI_Win_unlock(rank_, window_));
  }

  std::string provider() { return check::hint(window_, "farside_provider"); }

 private:
  MPI_Comm communicator_;
  check::Window window_;
  int rank_ = 0, ranks_ = 0;
  std::int64_t counted_ = 0;  // by this rank, at each rank
};

void rounds(std::list<Counted>& windows, int value) {
  for (int i = 0; i < kRounds; ++i) {
    for (Counted& each : windows) each.round(value + i);
  }
}

void in_turn(const check::Program& program) {
  const bool other = check::rank() == 1;
  const bool adapter = program.has("adapter"), all_first = program.has("all_first");
  MPI_Comm some = MPI_COMM_NULL, again = MPI_COMM_NULL, two = MPI_COMM_NULL;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, other ? MPI_UNDEFINED : 0, check::rank(), &some));
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, check::rank() < 2 ? 0 : MPI_UNDEFINED, check::rank(), &two));
  std::list<Counted> windows;
  const auto open = [&](const char* section, MPI_Comm communicator, const char* provider) {
    check::section(section);
    if (communicator == MPI_COMM_NULL) return;
    Counted& made = windows.emplace_back(program, communicator);
    if (adapter) CHECK_EQ(made.provider(), std::string(provider));
    rounds(windows, static_cast<int>(windows.size()) * 100);
  };
  if (all_first) open("the first window, of all ranks", MPI_COMM_WORLD, "tcp");
  open("a window without rank 1", some, "verbs");
  if (!all_first) open("the second window, of all ranks", MPI_COMM_WORLD, "tcp");
  if (!other) CHECK_MPI(MPI_Comm_dup(some, &again));
  open("a third window, again without rank 1", again, "verbs");
  if (check::rank() < 2) {
    check::Stderr captured;
    open("a window of ranks 0 and 1", two, "tcp");
    const std::string text = captured.end();
    if (adapter) CHECK(text.find("the ranks use") == std::string::npos);  // it was said before
  }
  check::section("the sums");
  // On each rank in the same order.
  for (Counted& each : windows) each.finish();
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  windows.clear();
  for (MPI_Comm* const each : {&some, &again, &two}) {
    if (*each != MPI_COMM_NULL) CHECK_MPI(MPI_Comm_free(each));
  }
}

// Asks tests/system/verbs to cut the cable, or to make it whole, and waits until that is done.
void change_cable() {
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const char* const file = std::getenv("FARSIDE_TEST_CUT_CABLE");
  if (check::rank() == 0) {
    CHECK(file != nullptr);
    std::FILE* made = std::fopen(file, "w");
    CHECK(made != nullptr);
    std::fclose(made);
    for (struct stat state{}; stat(file, &state) == 0;) usleep(50'000);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void cut(const check::Program& program) {
  MPI_Comm pair = MPI_COMM_NULL;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, check::rank() % 2 == 0 ? 0 : MPI_UNDEFINED, check::rank(), &pair));
  std::list<Counted> windows;
  check::section("a window of ranks 0 and 2");
  if (pair != MPI_COMM_NULL) {
    windows.emplace_back(program, pair);
    CHECK_EQ(windows.front().provider(), std::string("verbs"));
    rounds(windows, 100);
  }
  change_cable();
  check::section("a window of all ranks while the cable is dead");
  const auto begin = std::chrono::steady_clock::now();
  windows.emplace_back(program, MPI_COMM_WORLD);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK_EQ(windows.back().provider(), std::string("tcp"));
  CHECK(took.count() < program.number("within", 10));
  for (int i = 0; i < kRounds; ++i) windows.back().round(200 + i);
  change_cable();
  check::section("both windows, as the cable is whole again");
  rounds(windows, 300);
  for (Counted& each : windows) each.finish();
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  windows.clear();
  if (pair != MPI_COMM_NULL) CHECK_MPI(MPI_Comm_free(&pair));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (program.has("cut")) {
    cut(program);
  } else {
    in_turn(program);
  }
  return 0;
}

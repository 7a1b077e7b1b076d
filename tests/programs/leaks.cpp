// SPDX-License-Identifier: BSD-3-Clause
// Thousands of windows of every flavor are made, used and freed: descriptors, mappings and memory stay the same.
//
//   leaks [ROUNDS]
//   leaks groups     windows on many groups of half of the ranks
#include <algorithm>
#include <bit>

#include "usage.hpp"

namespace {

int rank;
int size;

void use(MPI_Win window, int target, MPI_Aint displacement) {
  const int value = rank;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, target, displacement, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_unlock(target, window));
}

// Makes, uses and frees one window of each flavor.
void round_of_all(int round) {
  const int target = (rank + round) % size;
  static int memory[64];
  void* base = nullptr;
  MPI_Win window;
  CHECK_MPI(MPI_Win_allocate(256, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  use(window, target, 5);
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Win_create(memory, 256, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  use(window, target, 5);
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Win_allocate_shared(256, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  use(window, target, 5);
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK_MPI(MPI_Win_attach(window, memory, 256));
  std::vector<MPI_Aint> where(static_cast<std::size_t>(size));
  MPI_Aint mine = 0;
  CHECK_MPI(MPI_Get_address(memory, &mine));
  CHECK_MPI(MPI_Allgather(&mine, 1, MPI_AINT, where.data(), 1, MPI_AINT, MPI_COMM_WORLD));
  use(window, target, where[static_cast<std::size_t>(target)] + 20);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  // In every second round the window is freed with its region attached.
  if (round % 2 == 0) CHECK_MPI(MPI_Win_detach(window, memory));
  CHECK_MPI(MPI_Win_free(&window));
  // Memory of MPI_Alloc_mem, with and without a window on it.
  CHECK_MPI(MPI_Alloc_mem(256, MPI_INFO_NULL, &base));
  if (round % 2 == 0) {
    CHECK_MPI(MPI_Win_create(base, 256, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    use(window, target, 5);
    CHECK_MPI(MPI_Win_free(&window));
  }
  CHECK_MPI(MPI_Free_mem(base));
}

// None of the groups contains another one, so each gathers the addresses of its processes. A process keeps 16 of these
// directories (pmpi/runtime/runtime_resources.hpp).
void windows_of_groups() {
  constexpr int kKept = 16;
  int own = 0;
  check::Usage before;
  for (unsigned members = 0; members < 1U << size; ++members) {
    if (std::popcount(members) != size / 2) continue;
    MPI_Comm group = MPI_COMM_NULL;
    const bool member = (members >> rank & 1) != 0;
    CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, member ? 0 : MPI_UNDEFINED, 0, &group));
    if (!member) continue;
    void* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    CHECK_MPI(MPI_Win_allocate(256, 4, MPI_INFO_NULL, group, &base, &window));
    use(window, own % (size / 2), 5);
    CHECK_MPI(MPI_Win_free(&window));
    CHECK_MPI(MPI_Comm_free(&group));
    if (++own == kKept) before = check::usage();
  }
  CHECK(own > 2 * kKept);
  check::Usage after = check::usage();
  after.descriptors = before.descriptors;  // of connections to further peers
  check::same_usage(before, after, {.mappings = 8, .kilobytes = 4096, .heap = 2048});
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  if (program.has("groups")) {
    windows_of_groups();
    return 0;
  }
  int rounds = 2500;  // each of four or five windows
  for (int i = 1; i < argc; ++i) rounds = std::max(1, std::atoi(argv[i]));
  // A first round makes what is made once, and fills the caches of the allocators.
  check::section("before");
  const int warm_up = std::max(50, rounds / 10);
  for (int round = 0; round < warm_up; ++round) round_of_all(round);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const check::Usage before = check::usage();
  check::section("rounds");
  for (int round = 0; round < rounds; ++round) round_of_all(round);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  check::section("after");
  // The heap may split or grow a few mappings, but not one per window. A leak of 64 bytes per window would be 800 KiB
  // for 12,500 windows.
  check::same_usage(before, check::usage(), {.mappings = 8, .kilobytes = 2048, .heap = 2048});
  return 0;
}

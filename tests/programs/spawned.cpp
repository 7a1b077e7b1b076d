// SPDX-License-Identifier: BSD-3-Clause
// Windows over the processes of the launcher and those that they started by MPI_Comm_spawn, or, with the argument
// "multiple", by MPI_Comm_spawn_multiple.
#include "check.hpp"

namespace {

constexpr int kInts = 1000;

// All ranks of the communicator count on rank 0, and put their rank to all ranks.
void use(MPI_Comm all, check::Memory memory) {
  int rank = -1;
  int size = 0;
  CHECK_MPI(MPI_Comm_rank(all, &rank));
  CHECK_MPI(MPI_Comm_size(all, &size));
  check::Window window(memory, kInts * sizeof(int), sizeof(int), all);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Put(&rank, 1, MPI_INT, target, rank, 1, MPI_INT, window));
  }
  const int one = 1;
  int before = -1;
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT, 0, kInts - 1, MPI_SUM, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK(before >= 0 && before < size);
  CHECK_MPI(MPI_Barrier(all));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  for (int origin = 0; origin < size; ++origin) CHECK_EQ(window.as<int>()[origin], origin);
  if (rank == 0) CHECK_EQ(window.as<int>()[kInts - 1], size);
  CHECK_MPI(MPI_Win_unlock(rank, window));
  // A ring of epochs over both kinds of process.
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 500, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(window.as<int>()[500], (rank + size - 1) % size);
  CHECK_MPI(MPI_Win_fence(0, window));
}

// Starts as many processes as there are; by MPI_Comm_spawn_multiple, in two groups, one of which has an info object.
int start(char* command, char** arguments, bool multiple, MPI_Comm* others) {
  if (!multiple) {
    return MPI_Comm_spawn(command, arguments, check::size(), MPI_INFO_NULL, 0, MPI_COMM_WORLD, others,
                          MPI_ERRCODES_IGNORE);
  }
  MPI_Info info;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "wdir", "/"));
  char* commands[] = {command, command};
  char** words[] = {arguments, arguments};
  const int counts[] = {1, check::size() - 1};
  const MPI_Info infos[] = {MPI_INFO_NULL, info};
  const int code =
      MPI_Comm_spawn_multiple(2, commands, words, counts, infos, 0, MPI_COMM_WORLD, others, MPI_ERRCODES_IGNORE);
  CHECK_MPI(MPI_Info_free(&info));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  MPI_Comm others = MPI_COMM_NULL;
  CHECK_MPI(MPI_Comm_get_parent(&others));
  const bool child = others != MPI_COMM_NULL;
  if (!child) {
    check::section("a window before the others are there");
    use(MPI_COMM_WORLD, program.memory());
    check::section("spawn");
    char create[] = "create";
    char* arguments[] = {program.memory() == check::Memory::kCreate ? create : nullptr, nullptr};
    CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (start(argv[0], arguments, program.has("multiple"), &others) != MPI_SUCCESS) {
      std::puts("skipped: the runtime starts no processes here");
      return check::kSkipped;
    }
  }
  check::section("a window over both");
  MPI_Comm all;
  CHECK_MPI(MPI_Intercomm_merge(others, child ? 1 : 0, &all));
  use(all, program.memory());
  use(all, program.memory());
  CHECK_MPI(MPI_Comm_free(&all));
  check::section("a window of one's own");
  use(MPI_COMM_WORLD, program.memory());
  CHECK_MPI(MPI_Comm_disconnect(&others));
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
// The functions of farside.h: farside's if it is loaded, else the header's own on plain MPI; both do the same in
// passive target epochs. With the argument "left": on a window that farside leaves to the runtime, too
// (FARSIDE_ROUTES=mapped).
#include <farside.h>

#include "check.hpp"

namespace {

int rank, size, next, previous;

MPI_Count value_of(MPI_Win win, int notify) {
  MPI_Count value = -1;
  CHECK_MPI(MPIX_Win_get_notify_value(win, notify, &value));
  return value;
}

// Each rank has a number of counters of its own. The window is freed with them, or gets others.
void numbers() {
  check::Window window(check::Memory::kAllocate, 64, 8);
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  int number = -1;
  CHECK_MPI(MPIX_Win_get_num_notify(window, next, &number));
  CHECK_EQ(number, 0);
  for (const int more : {1, 100, 0, 2}) {
    CHECK_MPI(MPIX_Win_set_num_notify(window, MPI_INFO_NULL, rank + more));
    for (int target = 0; target < size; ++target) {
      CHECK_MPI(MPIX_Win_get_num_notify(window, target, &number));
      CHECK_EQ(number, target + more);
    }
    if (rank + more > 0) CHECK_EQ(value_of(window, rank + more - 1), 0);
    MPI_Count value = 0;
    CHECK_REFUSED(MPIX_Win_get_notify_value(window, rank + more, &value), MPIX_ERR_RMA_NOTIFICATION);
    CHECK_REFUSED(MPIX_Win_get_notify_value(window, -1, &value), MPIX_ERR_RMA_NOTIFICATION);
    CHECK_REFUSED(MPIX_Win_get_num_notify(window, size, &number), MPI_ERR_RANK);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  // A rank with a wrong number keeps its own; the others get theirs.
  for (const int wrong : {-1, MPIX_NOTIFY_NUM_UB + 1}) {
    const int code = MPIX_Win_set_num_notify(window, MPI_INFO_NULL, rank == 0 ? wrong : 1);
    rank == 0 ? CHECK_REFUSED(code, MPI_ERR_ARG) : CHECK_MPI(code);
    CHECK_MPI(MPIX_Win_get_num_notify(window, next, &number));
    CHECK_EQ(number, next == 0 ? 2 : 1);
  }
}

// Each operation and its request-based form, to the next rank, by the window's displacements from `at` on.
void operations(MPI_Win win, std::int64_t* memory, MPI_Aint at) {
  CHECK_MPI(MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 2));
  CHECK_MPI(MPI_Win_lock_all(0, win));
  std::int64_t mine = 10 + rank, got = -1;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto arrived = [&](MPI_Count count) { CHECK_MPI(MPIX_Win_wait_notify(win, 1, count)); };
  const auto done = [&] { CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE)); };

  check::section("put");
  CHECK_MPI(MPIX_Put_notify(&mine, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, 1, win));
  arrived(1);
  CHECK_EQ(memory[0], 10 + previous);
  CHECK_MPI(MPI_Win_flush(next, win));  // `mine` may change
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  mine += 100;
  CHECK_MPI(MPIX_Rput_notify(&mine, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, 1, win, &request));
  done();
  arrived(2);
  CHECK_EQ(memory[0], 110 + previous);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));

  check::section("get");
  CHECK_MPI(MPIX_Get_notify(&got, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, 1, win));
  CHECK_MPI(MPI_Win_flush(next, win));
  CHECK_EQ(got, 110 + rank);
  arrived(3);
  got = -1;
  CHECK_MPI(MPIX_Rget_notify(&got, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, 1, win, &request));
  done();
  CHECK_EQ(got, 110 + rank);
  arrived(4);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));

  check::section("accumulate");
  mine = 1;
  CHECK_MPI(MPIX_Accumulate_notify(&mine, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, MPI_SUM, 1, win));
  CHECK_MPI(MPIX_Raccumulate_notify(&mine, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, MPI_SUM, 1, win, &request));
  done();
  arrived(6);
  CHECK_EQ(memory[0], 112 + previous);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPIX_Get_accumulate_notify(&mine, 1, MPI_INT64_T, &got, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, MPI_SUM,
                                       1, win));
  CHECK_MPI(MPI_Win_flush(next, win));
  CHECK_EQ(got, 112 + rank);
  CHECK_MPI(MPIX_Rget_accumulate_notify(&mine, 1, MPI_INT64_T, &got, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, MPI_SUM,
                                        1, win, &request));
  done();
  CHECK_EQ(got, 113 + rank);
  arrived(8);
  CHECK_EQ(memory[0], 114 + previous);

  check::section("nothing to transfer");
  CHECK_MPI(MPIX_Put_notify(nullptr, 0, MPI_INT64_T, next, at, 0, MPI_INT64_T, 1, win));
  CHECK_MPI(MPIX_Put_notify(&mine, 1, MPI_INT64_T, MPI_PROC_NULL, at, 1, MPI_INT64_T, 1, win));
  MPI_Count all = 9;
#if MPI_VERSION >= 4
  CHECK_MPI(MPIX_Put_notify_c(nullptr, 0, MPI_INT64_T, next, at, 0, MPI_INT64_T, 1, win));
  ++all;
#endif
  arrived(all);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_EQ(value_of(win, 1), all);
  CHECK_EQ(value_of(win, 0), 0);

  check::section("reset and test");
  int flag = -1;
  CHECK_MPI(MPIX_Win_test_notify(win, 1, all, &flag));
  CHECK_EQ(flag, 1);
  CHECK_MPI(MPIX_Win_test_notify(win, 1, all + 1, &flag));
  CHECK_EQ(flag, 0);
  MPI_Count before = -1;
  CHECK_MPI(MPIX_Win_reset_notify_value(win, 1, &before));
  CHECK_EQ(before, all);
  CHECK_EQ(value_of(win, 1), 0);

  check::section("mistakes");
  CHECK_MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
  for (const int notify : {-1, 2})
    CHECK_REFUSED(MPIX_Put_notify(&mine, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, notify, win),
                  MPIX_ERR_RMA_NOTIFICATION);
  CHECK_REFUSED(MPIX_Put_notify(&mine, 1, MPI_INT64_T, size, at, 1, MPI_INT64_T, 1, win), MPI_ERR_RANK);
  CHECK_REFUSED(MPIX_Win_wait_notify(win, 2, 0), MPIX_ERR_RMA_NOTIFICATION);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_EQ(memory[0], 114 + previous);
  CHECK_EQ(value_of(win, 1), 0);
  CHECK_MPI(MPI_Win_unlock_all(win));
}

void allocated() {
  check::Window window(check::Memory::kAllocate, 64, 8);
  operations(window, window.as<std::int64_t>(), 0);
}

// A fence is no passive target epoch: the header's own functions are refused by runtimes that check, farside's count.
void fence() {
  check::Window window(check::Memory::kAllocate, 64, 8);
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  CHECK_MPI(MPIX_Win_set_num_notify(window, MPI_INFO_NULL, 1));
  CHECK_MPI(MPI_Win_fence(0, window));
  const std::int64_t mine = rank;
  const int code = MPIX_Put_notify(&mine, 1, MPI_INT64_T, next, 0, 1, MPI_INT64_T, 0, window);
  if (code != MPI_SUCCESS) CHECK_REFUSED(code, MPI_ERR_RMA_SYNC);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK_EQ(value_of(window, 0), code == MPI_SUCCESS ? 1 : 0);
}

// A rank waits much longer than a wait spins.
void long_wait() {
  check::Window window(check::Memory::kAllocate, 64, 8);
  CHECK_MPI(MPIX_Win_set_num_notify(window, MPI_INFO_NULL, 1));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  if (rank == 0) usleep(300'000);
  if (rank > 0) CHECK_MPI(MPIX_Win_wait_notify(window, 0, 1));
  if (rank + 1 < size) CHECK_MPI(MPIX_Put_notify(&rank, 1, MPI_INT, rank + 1, 0, 1, MPI_INT, 0, window));
  if (rank > 0) CHECK_EQ(*window.as<int>(), rank - 1);
  CHECK_MPI(MPI_Win_unlock_all(window));
}

void left_to_the_runtime() {
  MPI_Win win;
  std::int64_t memory[8] = {};
  CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  CHECK_EQ(check::hint(win, "farside_route"), std::string());
  CHECK_MPI(MPI_Win_attach(win, memory, sizeof memory));
  std::vector<MPI_Aint> addresses(static_cast<std::size_t>(size));
  MPI_Aint mine = 0;
  CHECK_MPI(MPI_Get_address(memory, &mine));
  CHECK_MPI(MPI_Allgather(&mine, 1, MPI_AINT, addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD));
  operations(win, memory, addresses[static_cast<std::size_t>(next)]);
  CHECK_MPI(MPI_Win_detach(win, memory));
  CHECK_MPI(MPI_Win_free(&win));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv, MPI_THREAD_MULTIPLE);
  rank = check::rank();
  size = check::size();
  next = (rank + 1) % size;
  previous = (rank + size - 1) % size;
  const check::Section<> sections[] = {
      {"numbers", numbers}, {"operations", allocated}, {"a fence", fence}, {"a long wait", long_wait}};
  check::run(sections);
  if (program.has("left")) left_to_the_runtime();
}

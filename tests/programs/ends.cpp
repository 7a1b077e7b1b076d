// SPDX-License-Identifier: BSD-3-Clause
// Programs with irregular ends, and child processes without MPI: nothing hangs, nothing is lost.
//
//   fork          each rank forks a child within an epoch; the child ends by exit(3), and the rank continues
//   unfreed       MPI_Finalize with windows that were never freed, one with an open epoch at the last rank
//   callback      a delete callback of MPI_COMM_SELF, in MPI_Finalize, uses a new datatype and frees the window
//   late          one rank enters MPI_Finalize a second after the others; until then farside must not move the runtime
//   no_finalize   exit(3) without MPI_Finalize, windows open   (fails: the launcher reports it)
//   abort         MPI_Abort with windows open                  (fails)
//   descriptors   RLIMIT_NOFILE is reached: windows are refused with an error, then made when the limit is raised
#include <array>
#include <memory>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.hpp"

namespace {

// Each rank puts a word to the next rank; the words beside it stay unchanged.
void put_around(MPI_Win window, std::int64_t value) {
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, (check::rank() + 1) % check::size(), 1, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_fence(0, window));
}

void fork_amid(const check::Program& program) {
  check::section("fork");
  const check::Window window(program.memory(), 64, 8);
  put_around(window, 5);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  const std::int64_t one = 1;
  std::int64_t before = 0;
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) exit(window.as<std::int64_t>()[1] == 5 ? 0 : 1);
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK_MPI(MPI_Win_unlock_all(window));
  put_around(window, 6);
  CHECK_EQ(window.as<std::int64_t>()[1], std::int64_t{6});
  if (check::rank() == 0) CHECK_EQ(window.as<std::int64_t>()[0], std::int64_t{check::size()});
}

void leave_open(const check::Program& program) {
  for (int i = 0; i < 3; ++i) {
    const auto& window = *new check::Window(program.memory(), 64, 8);
    put_around(window, i);
    if (i == 1 && check::rank() == check::size() - 1) CHECK_MPI(MPI_Win_lock_all(0, window));
  }
}

// MPI 4.0 section 11.2.4: the callback is called before MPI_Finalize affects any other part of MPI.
int use_and_free(MPI_Comm, int, void* attribute, void*) {
  const std::unique_ptr<check::Window> window(static_cast<check::Window*>(attribute));
  MPI_Datatype strided = MPI_DATATYPE_NULL;
  CHECK_MPI(MPI_Type_vector(2, 1, 2, MPI_INT32_T, &strided));
  CHECK_MPI(MPI_Type_commit(&strided));
  const std::array<std::int32_t, 3> sent{7, 8, 9};
  CHECK_MPI(MPI_Win_fence(0, *window));
  CHECK_MPI(MPI_Put(sent.data(), 1, strided, (check::rank() + 1) % check::size(), 0, 1, strided, *window));
  CHECK_MPI(MPI_Win_fence(0, *window));
  CHECK_EQ(window->as<std::int32_t>()[2], 9);
  CHECK_MPI(MPI_Type_free(&strided));
  return MPI_SUCCESS;
}

void leave_to_callback(const check::Program& program) {
  int key = MPI_KEYVAL_INVALID;
  CHECK_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, use_and_free, &key, nullptr));
  auto window = std::make_unique<check::Window>(program.memory(), 64, 8);
  const std::int32_t sent = 1;
  CHECK_MPI(MPI_Win_fence(0, *window));
  CHECK_MPI(MPI_Put(&sent, 1, MPI_INT32_T, (check::rank() + 1) % check::size(), 1, 1, MPI_INT32_T, *window));
  CHECK_MPI(MPI_Win_fence(0, *window));
  CHECK_MPI(MPI_Comm_set_attr(MPI_COMM_SELF, key, window.release()));
}

// Long messages make UCX's tcp flush its connections in MPI_Finalize. MPICH 4.0 by itself hangs there if a process
// answers another's flush before its own MPI_Finalize begins: so the send of the last rank, which does not enter the
// progress engine, is its last call, and the others enter MPI_Finalize after it. The delay of one second is the case
// under test.
void come_late(const check::Program& program) {
  check::section("late");
  { put_around(check::Window(program.memory(), 64, 8), 1); }
  std::vector<char> sent(50000, 'a');
  std::vector<char> received(sent.size());
  const int ranks = check::size();
  const int last = ranks - 1;
  CHECK_MPI(MPI_Sendrecv(sent.data(), static_cast<int>(sent.size()), MPI_CHAR, (check::rank() + 1) % ranks, 0,
                         received.data(), static_cast<int>(received.size()), MPI_CHAR,
                         (check::rank() + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CHECK(received == sent);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() != last) {
    CHECK_MPI(MPI_Recv(nullptr, 0, MPI_CHAR, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return;
  }
  for (int other = 0; other < last; ++other) CHECK_MPI(MPI_Send(nullptr, 0, MPI_CHAR, other, 1, MPI_COMM_WORLD));
  sleep(1);
}

// Without a free descriptor no memory can be mapped: an error on all ranks, and memory and runtime stay unchanged.
void without_descriptors(const check::Program& program) {
  check::section("no descriptors");
  const check::Window before(program.memory(), 64, 8);
  put_around(before, 1);  // over the fabric, the connections are made here
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  rlimit usual{};
  getrlimit(RLIMIT_NOFILE, &usual);
  const int next = dup(STDERR_FILENO);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), usual.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  void* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  std::vector<char> memory(4096, 'a');
  const int code = program.memory() == check::Memory::kAllocate
                       ? MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window)
                       : MPI_Win_create(memory.data(), 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  CHECK(code != MPI_SUCCESS);
  CHECK(std::all_of(memory.begin(), memory.end(), [](char c) { return c == 'a'; }));
  put_around(before, 7);
  setrlimit(RLIMIT_NOFILE, &usual);
  const check::Window after(program.memory(), 64, 8);
  put_around(after, 8);
  CHECK_EQ(after.as<std::int64_t>()[1], std::int64_t{8});
  CHECK_EQ(before.as<std::int64_t>()[1], std::int64_t{7});
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (program.has("fork")) fork_amid(program);
  if (program.has("callback")) leave_to_callback(program);
  if (program.has("late")) come_late(program);
  if (program.has("descriptors")) without_descriptors(program);
  if (program.has("unfreed") || program.has("no_finalize") || program.has("abort")) leave_open(program);
  if (program.has("no_finalize")) exit(3);
  if (program.has("abort")) MPI_Abort(MPI_COMM_WORLD, 4);
  return 0;
}

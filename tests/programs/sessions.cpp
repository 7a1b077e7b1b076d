// SPDX-License-Identifier: BSD-3-Clause
// Windows of a program that never calls MPI_Init: two of MPI 4.0's sessions at once, ended one after the other.
// Arguments: `create`: windows of MPI_Win_create. `world`: beside a window of the world model, which has one thread,
// while the sessions request MPI_THREAD_MULTIPLE. `again`: new sessions after the end of all others, and with them of
// farside, three times; only the second time they request MPI_THREAD_MULTIPLE.
#include <algorithm>
#include <memory>
#include <string_view>

#include "check.hpp"

// Open MPI 5 has sessions, although its mpi.h says MPI 3.1.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)

namespace {

constexpr MPI_Aint kBytes = 64 * sizeof(int);

struct Session {
  explicit Session(const char* tag, bool with_threads) {
    MPI_Info info = MPI_INFO_NULL;
    if (with_threads) {
      CHECK_MPI(MPI_Info_create(&info));
      CHECK_MPI(MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE"));
    }
    CHECK_MPI(MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session));
    if (with_threads) CHECK_MPI(MPI_Info_free(&info));
    MPI_Group group;
    CHECK_MPI(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    CHECK_MPI(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &all));
    CHECK_MPI(MPI_Group_free(&group));
    CHECK_MPI(MPI_Comm_rank(all, &check::state.rank));
  }
  ~Session() {
    CHECK_MPI(MPI_Comm_free(&all));
    CHECK_MPI(MPI_Session_finalize(&session));
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  MPI_Session session = MPI_SESSION_NULL;
  MPI_Comm all = MPI_COMM_NULL;
};

// Each rank puts its number to the next rank.
void put_around(MPI_Comm all, const check::Window& window) {
  const int rank = check::state.rank;
  int size = 0;
  CHECK_MPI(MPI_Comm_size(all, &size));
  const int next = (rank + 1) % size;
  const int value = 100 + rank;
  CHECK_MPI(MPI_Barrier(all));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 7, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(window.as<int>()[7], 100 + (rank + size - 1) % size);
  const int one = 1;
  int before = -1;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT, next, 7, MPI_SUM, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(before, value);
}
void put_around(const Session& session, check::Memory memory) {
  put_around(session.all, check::Window(memory, kBytes, sizeof(int), session.all));
}

void run_sessions(check::Memory memory, bool with_threads) {
  check::section("one session");
  auto first = std::make_unique<Session>("farside.sessions.first", with_threads);
  put_around(*first, memory);
  check::section("a second one beside it");
  Session second("farside.sessions.second", with_threads);
  check::Window window(memory, kBytes, sizeof(int), second.all);
  put_around(second.all, window);
  put_around(*first, memory);
  check::section("the second goes on");
  first.reset();
  put_around(second.all, window);
  put_around(second, memory);
}

// A lock that was acquired before the sessions, perhaps deferred over the fabric, is released after they began.
void beside_the_world(check::Memory memory) {
  check::section("the world model");
  check::Window window(memory, kBytes, sizeof(int));
  const int rank = check::state.rank;
  const int next = (rank + 1) % check::size();
  put_around(MPI_COMM_WORLD, window);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  run_sessions(memory, true);
  check::section("the world model afterwards");
  const int value = 7 + rank;
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 9, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(window.as<int>()[9], 7 + (rank + check::size() - 1) % check::size());
  put_around(MPI_COMM_WORLD, window);
}

}  // namespace

int main(int argc, char** argv) {
  const auto has = [&](std::string_view word) { return std::find(argv + 1, argv + argc, word) != argv + argc; };
  const check::Memory memory = has("create") ? check::Memory::kCreate : check::Memory::kAllocate;
  if (has("world")) {
    check::Program program(argc, argv);
    beside_the_world(memory);
  } else if (has("again")) {
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40200000
    std::puts("skipped: MPICH 4.0 crashes in calls after the last session has ended, natively too");
    return check::kSkipped;
#endif
    for (int round = 0; round < 3; ++round) run_sessions(memory, round == 1);
    check::section("the end");
  } else {
    run_sessions(memory, false);
    check::section("the end");
  }
  return 0;
}

#else

int main() {
  std::puts("skipped: the runtime has no sessions (MPI 4.0)");
  return check::kSkipped;
}

#endif

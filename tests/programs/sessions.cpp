// SPDX-License-Identifier: BSD-3-Clause
// Windows of a program that never calls MPI_Init: MPI 4.0's sessions, two at once, ended one by one.
#include "check.hpp"

#include <memory>

// Open MPI 5 has sessions, and its mpi.h says MPI 3.1.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)

namespace {

constexpr MPI_Aint kBytes = 64 * sizeof(int);

struct Session {
  explicit Session(const char* tag) {
    CHECK_MPI(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session));
    MPI_Group group;
    CHECK_MPI(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    CHECK_MPI(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &all));
    CHECK_MPI(MPI_Group_free(&group));
    CHECK_MPI(MPI_Comm_rank(all, &check::state.rank));
    CHECK_MPI(MPI_Comm_size(all, &size));
  }
  ~Session() {
    CHECK_MPI(MPI_Comm_free(&all));
    CHECK_MPI(MPI_Session_finalize(&session));
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  MPI_Session session = MPI_SESSION_NULL;
  MPI_Comm all = MPI_COMM_NULL;
  int size = 0;
};

// Each rank puts its number into its neighbour.
void put_around(const Session& session, const check::Window& window) {
  const int rank = check::state.rank;
  const int next = (rank + 1) % session.size;
  const int value = 100 + rank;
  CHECK_MPI(MPI_Barrier(session.all));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 7, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(window.as<int>()[7], 100 + (rank + session.size - 1) % session.size);
  const int one = 1;
  int before = -1;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT, next, 7, MPI_SUM, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(before, value);
}
void put_around(const Session& session, check::Memory memory) {
  put_around(session, check::Window(memory, kBytes, sizeof(int), session.all));
}

}  // namespace

int main(int argc, char** argv) {
  const check::Memory memory =
      argc > 1 && std::string(argv[1]) == "create" ? check::Memory::kCreate : check::Memory::kAllocate;
  check::section("one session");
  auto first = std::make_unique<Session>("farside.sessions.first");
  put_around(*first, memory);
  check::section("a second one beside it");
  Session second("farside.sessions.second");
  check::Window window(memory, kBytes, sizeof(int), second.all);
  put_around(second, window);
  put_around(*first, memory);
  check::section("the second goes on");
  first.reset();
  put_around(second, window);
  put_around(second, memory);
  check::section("the end");
  return 0;
}

#else

int main() {
  std::puts("skipped: the runtime has no sessions (MPI 4.0)");
  return check::kSkipped;
}

#endif

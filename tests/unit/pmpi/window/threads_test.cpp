// SPDX-License-Identifier: BSD-3-Clause
// Whether farside expects several threads: from the world model, and from MPI 4.0's sessions beside it. One rank.
#include <array>
#include <cstdint>
#include <string_view>

#include <catch2/catch.hpp>
#include <mpi.h>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "pmpi/window/window.hpp"
#include "tests/support/catch_session.hpp"

using namespace farside::pmpi;

TEST_CASE("the world model alone says whether there are threads") {
  int level = MPI_THREAD_MULTIPLE;
  MPI_Query_thread(&level);
  REQUIRE(level < MPI_THREAD_MULTIPLE);
  CHECK_FALSE(library().resources->is_threaded());
}

#if FARSIDE_HAS_SESSIONS
namespace {

bool provides_threads(MPI_Session session) {
  MPI_Info info = MPI_INFO_NULL;
  REQUIRE(MPI_Session_get_info(session, &info) == MPI_SUCCESS);
  std::array<char, 64> level{};
  int found = 0;
  MPI_Info_get(info, "thread_level", static_cast<int>(level.size()) - 1, level.data(), &found);
  MPI_Info_free(&info);
  return std::string_view(level.data()) == "MPI_THREAD_MULTIPLE";
}

}  // namespace

TEST_CASE("windows expect threads as soon as a session with MPI_THREAD_MULTIPLE has begun") {
  constexpr MPI_Aint kBytes = 64;
  void* memory = nullptr;
  MPI_Win before = MPI_WIN_NULL;
  REQUIRE(MPI_Win_allocate(kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &before) == MPI_SUCCESS);
  std::int64_t value = 5;
  const LocalBuffer from{&value, 1, MPI_INT64_T};
  const auto takes_fast_path = [&](MPI_Win handle) {
    Window* const window = library().windows.find_fast(handle);
    REQUIRE(window != nullptr);
    REQUIRE(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, handle) == MPI_SUCCESS);
    // Where a library for GPUs is loaded, as with Debian 13's runtimes, the first call asks it about the buffer's page.
    REQUIRE(MPI_Put(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, handle) == MPI_SUCCESS);
    const bool on_fast_path = window->operations().try_put(from, {0, 0, 1, MPI_INT64_T});
    REQUIRE(MPI_Win_unlock(0, handle) == MPI_SUCCESS);
    return on_fast_path;
  };
  const auto is_threaded = [](MPI_Win handle) { return library().windows.find_fast(handle)->threaded(); };
  CHECK(takes_fast_path(before));
  CHECK_FALSE(is_threaded(before));
  // A lock that was acquired without the guard is released under it.
  REQUIRE(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, before) == MPI_SUCCESS);

  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
  MPI_Session session = MPI_SESSION_NULL;
  REQUIRE(MPI_Session_init(info, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
  MPI_Info_free(&info);
  // Beside a world model without threads some runtimes give a session fewer than it asks for (MPICH 5, Open MPI 6).
  const bool threads = provides_threads(session);
  if (!threads) WARN("this runtime gives a session no threads beside MPI_THREAD_SINGLE");
  CHECK(library().resources->is_threaded() == threads);
  REQUIRE(MPI_Put(&value, 1, MPI_INT64_T, 0, 8, 1, MPI_INT64_T, before) == MPI_SUCCESS);
  REQUIRE(MPI_Win_unlock(0, before) == MPI_SUCCESS);
  CHECK(static_cast<std::int64_t*>(memory)[1] == 5);
  CHECK(is_threaded(before) == threads);
  CHECK(takes_fast_path(before));
  MPI_Win later = MPI_WIN_NULL;
  REQUIRE(MPI_Win_allocate(kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &later) == MPI_SUCCESS);
  CHECK(is_threaded(later) == threads);
  CHECK(takes_fast_path(later));
  CHECK(MPI_Win_free(&before) == MPI_SUCCESS);
  CHECK(MPI_Win_free(&later) == MPI_SUCCESS);
  CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS);
}
#endif

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
  const int failed = run_catch(argc, argv);
  MPI_Finalize();
  return failed == 0 ? 0 : 1;
}

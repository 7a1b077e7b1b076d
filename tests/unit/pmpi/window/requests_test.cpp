// SPDX-License-Identifier: BSD-3-Clause
// The runtime reuses the handle of a freed request for the next request of any thread. The report on the first request
// must not contain the error of the second. One rank, which puts to itself under FARSIDE_CHECK=strict.
#include "pmpi/window/requests.hpp"

#include <cstdlib>

#include <catch2/catch.hpp>
#include <mpi.h>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "tests/support/catch_session.hpp"

using namespace farside::pmpi;

TEST_CASE("a request is told of by the thread that completed it, even if its handle is another request's by then") {
  int* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  REQUIRE(MPI_Win_allocate(64, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window) == MPI_SUCCESS);
  REQUIRE(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN) == MPI_SUCCESS);
  REQUIRE(MPI_Win_lock_all(0, window) == MPI_SUCCESS);
  int first[2] = {};
  int second[2] = {};
  volatile int* const to_second = second;
  int reused = 0;
  for (int round = 0; round < 100; ++round) {
    MPI_Request one = MPI_REQUEST_NULL;
    MPI_Request other = MPI_REQUEST_NULL;
    REQUIRE(MPI_Rput(first, 2, MPI_INT, 0, 0, 2, MPI_INT, window, &one) == MPI_SUCCESS);
    const MPI_Request handle = one;
    // The two parts of one thread's MPI_Wait; another thread makes its request between them.
    REQUIRE(library().requests->any_to_report(1));
    REQUIRE(runtime().Wait(&one, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    REQUIRE(MPI_Rput(second, 2, MPI_INT, 0, 2, 2, MPI_INT, window, &other) == MPI_SUCCESS);
    to_second[0] = to_second[0] + 1;
    reused += other == handle ? 1 : 0;
    CHECK(library().requests->report(handle) == MPI_SUCCESS);
    // The store to the second request's buffer is reported when that request is completed.
    int error_class = MPI_SUCCESS;
    MPI_Error_class(MPI_Wait(&other, MPI_STATUS_IGNORE), &error_class);
    CHECK(error_class == MPI_ERR_RMA_CONFLICT);
    CHECK_FALSE(library().requests->any_to_report(1));
    REQUIRE(MPI_Win_flush_all(window) == MPI_SUCCESS);
  }
#ifndef __SANITIZE_ADDRESS__  // the sanitizer delays the reuse of freed memory
  CHECK(reused > 0);
#endif
  CHECK(MPI_Win_unlock_all(window) == MPI_SUCCESS);
  CHECK(MPI_Win_free(&window) == MPI_SUCCESS);
}

int main(int argc, char** argv) {
  setenv("FARSIDE_CHECK", "strict", 1);
  MPI_Init(&argc, &argv);
  const int failed = run_catch(argc, argv);
  MPI_Finalize();
  return failed == 0 ? 0 : 1;
}

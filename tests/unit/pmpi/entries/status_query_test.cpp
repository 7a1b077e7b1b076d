// SPDX-License-Identifier: BSD-3-Clause
// The queries of several requests (MPI 4.1 section 3.7.6) for requests of farside whose operations end while the
// program queries. Where the runtime has no such call, one made of MPI_Request_get_status takes its place. One rank,
// with FARSIDE_CHECK=strict.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>
#include <mpi.h>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/requests.hpp"
#include "pmpi/window/window.hpp"
#include "tests/support/catch_session.hpp"
#include "transport/fabric/pending.hpp"

using namespace farside::pmpi;

namespace {

// The runtime's calls, or what stands for them.
#if FARSIDE_HAS_STATUS_QUERIES
// MPICH 4.2 has no const in them.
MPI_Request* list_of(const std::vector<MPI_Request>& requests) { return const_cast<MPI_Request*>(requests.data()); }
#else
bool is_complete(MPI_Request request) {
  int flag = 0;
  REQUIRE(runtime().Request_get_status(request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  return flag != 0;
}
#endif

int any_of_runtime(const std::vector<MPI_Request>& requests, int* index, int* flag) {
#if FARSIDE_HAS_STATUS_QUERIES
  return runtime().Request_get_status_any(static_cast<int>(requests.size()), list_of(requests), index, flag,
                                          MPI_STATUS_IGNORE);
#else
  bool active = false;
  *index = MPI_UNDEFINED;
  for (std::size_t i = 0; i < requests.size() && *index == MPI_UNDEFINED; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    active = true;
    if (is_complete(requests[i])) *index = static_cast<int>(i);
  }
  *flag = !active || *index != MPI_UNDEFINED;
  return MPI_SUCCESS;
#endif
}

int all_of_runtime(const std::vector<MPI_Request>& requests, int* flag) {
#if FARSIDE_HAS_STATUS_QUERIES
  return runtime().Request_get_status_all(static_cast<int>(requests.size()), list_of(requests), flag,
                                          MPI_STATUSES_IGNORE);
#else
  *flag = 1;
  for (MPI_Request each : requests) *flag = is_complete(each) && *flag != 0;
  return MPI_SUCCESS;
#endif
}

int some_of_runtime(const std::vector<MPI_Request>& requests, int* completed, int* indices) {
#if FARSIDE_HAS_STATUS_QUERIES
  return runtime().Request_get_status_some(static_cast<int>(requests.size()), list_of(requests), completed, indices,
                                           MPI_STATUSES_IGNORE);
#else
  bool active = false;
  *completed = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    active = true;
    if (is_complete(requests[i])) indices[(*completed)++] = static_cast<int>(i);
  }
  if (!active) *completed = MPI_UNDEFINED;
  return MPI_SUCCESS;
#endif
}

// Shows a request that the runtime has reported, as farside's calls do.
void show(MPI_Request request) { library().requests->show(request); }

// farside's calls. Index of the request that any() has reported, -1 if none is complete, MPI_UNDEFINED if none is
// active.
int any(const std::vector<MPI_Request>& requests) {
  int index = -7;
  int flag = -7;
  library().requests->look(requests);
  REQUIRE(any_of_runtime(requests, &index, &flag) == MPI_SUCCESS);
  if (flag != 0 && index != MPI_UNDEFINED) show(requests[static_cast<std::size_t>(index)]);
  return flag != 0 ? index : -1;
}
bool all(const std::vector<MPI_Request>& requests) {
  int flag = -7;
  library().requests->look(requests);
  REQUIRE(all_of_runtime(requests, &flag) == MPI_SUCCESS);
  if (flag != 0) std::ranges::for_each(requests, show);
  return flag != 0;
}
// MPI_UNDEFINED as the only index: no request is active.
std::vector<int> some(const std::vector<MPI_Request>& requests) {
  int completed = -7;
  std::vector<int> indices(requests.size());
  library().requests->look(requests);
  REQUIRE(some_of_runtime(requests, &completed, indices.data()) == MPI_SUCCESS);
  if (completed == MPI_UNDEFINED) return {MPI_UNDEFINED};
  indices.resize(static_cast<std::size_t>(completed));
  for (const int index : indices) show(requests[static_cast<std::size_t>(index)]);
  return indices;
}

class SmallWindow {
 public:
  SmallWindow() {
    REQUIRE(MPI_Win_allocate(64, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory_, &handle) == MPI_SUCCESS);
    REQUIRE(MPI_Win_set_errhandler(handle, MPI_ERRORS_RETURN) == MPI_SUCCESS);
    REQUIRE(MPI_Win_lock_all(0, handle) == MPI_SUCCESS);
  }
  ~SmallWindow() {
    MPI_Win_unlock_all(handle);
    MPI_Win_free(&handle);
  }
  Window& window() const { return *library().windows.find_fast(handle); }
  MPI_Win handle = MPI_WIN_NULL;

 private:
  int* memory_ = nullptr;
};

// Requests of operations over the fabric that are under way until the test ends them.
struct UnderWay {
  explicit UnderWay(Window& window) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      auto own = std::make_unique<farside::Pending>();
      operations[i] = own.get();
      own->issued(farside::Pending::kReads);
      REQUIRE(library().requests->start("MPI_Rget", window, 0, std::move(own), 0, &requests[i]));
    }
  }
  void end(std::size_t i) { operations[i]->completed(farside::Pending::kReads); }
  std::vector<MPI_Request> requests = std::vector<MPI_Request>(3, MPI_REQUEST_NULL);
  std::array<farside::Pending*, 3> operations{};
};

}  // namespace

TEST_CASE("a query finds the requests of operations that have ended, and leaves them to the program") {
  const SmallWindow small;
  UnderWay under_way(small.window());
  const std::vector<MPI_Request>& requests = under_way.requests;
  CHECK(any(requests) == -1);
  CHECK_FALSE(all(requests));
  CHECK(some(requests).empty());
  under_way.end(1);
  // Each query looks by itself, so each is tried first once.
  SECTION("by any") { CHECK(any(requests) == 1); }
  SECTION("by some") { CHECK(some(requests) == std::vector<int>{1}); }
  SECTION("by all") {
    CHECK_FALSE(all(requests));
    under_way.end(0);
    under_way.end(2);
    CHECK(all(requests));
    CHECK(some(requests) == std::vector<int>{0, 1, 2});
    for (std::size_t i = 0; i < 3; ++i) CHECK(requests[i] != MPI_REQUEST_NULL);
    CHECK(MPI_Waitall(3, under_way.requests.data(), MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    CHECK(any(requests) == MPI_UNDEFINED);
    CHECK(all(requests));
    CHECK(some(requests) == std::vector<int>{MPI_UNDEFINED});
    return;
  }
  CHECK(requests[1] != MPI_REQUEST_NULL);
  CHECK(MPI_Wait(&under_way.requests[1], MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(any(requests) == -1);
  CHECK_FALSE(all(requests));
  under_way.end(0);
  under_way.end(2);
  CHECK(some(requests) == std::vector<int>{0, 2});
  CHECK(all(requests));
  CHECK(MPI_Waitall(3, under_way.requests.data(), MPI_STATUSES_IGNORE) == MPI_SUCCESS);
}

TEST_CASE("the program gets the error of an operation when it completes the request, not by a query") {
  const SmallWindow small;
  UnderWay under_way(small.window());
  under_way.operations[2]->failed({farside::ErrorKind::kPeer, "the test says so"});
  for (std::size_t i = 0; i < 3; ++i) under_way.end(i);
  CHECK(all(under_way.requests));
  CHECK(some(under_way.requests).size() == 3);
  CHECK(any(under_way.requests) == 0);
  CHECK(MPI_Wait(&under_way.requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(MPI_Wait(&under_way.requests[1], MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(MPI_Wait(&under_way.requests[2], MPI_STATUS_IGNORE) != MPI_SUCCESS);
}

TEST_CASE("buffers of requests that a query has reported complete may be reused") {
  const SmallWindow small;
  std::array<int, 3> values{};
  volatile int* const stored = values.data();
  std::vector<MPI_Request> requests(3, MPI_REQUEST_NULL);
  const auto put = [&] {
    for (int i = 0; i < 3; ++i) {
      REQUIRE(MPI_Rput(&values[static_cast<std::size_t>(i)], 1, MPI_INT, 0, i, 1, MPI_INT, small.handle,
                       &requests[static_cast<std::size_t>(i)]) == MPI_SUCCESS);
    }
  };
  const auto store_and_wait = [&](std::size_t i) {
    stored[i] = stored[i] + 1;
    int error_class = MPI_SUCCESS;
    MPI_Error_class(MPI_Wait(&requests[i], MPI_STATUS_IGNORE), &error_class);
    return error_class;
  };
  put();
  SECTION("all") {
    CHECK(all(requests));
    for (std::size_t i = 0; i < 3; ++i) CHECK(store_and_wait(i) == MPI_SUCCESS);
  }
  SECTION("some") {
    CHECK(some(requests).size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(store_and_wait(i) == MPI_SUCCESS);
  }
  SECTION("any") {
    const int reported = any(requests);
    REQUIRE(reported >= 0);
    for (std::size_t i = 0; i < 3; ++i) {
      const int expected = static_cast<int>(i) == reported ? MPI_SUCCESS : MPI_ERR_RMA_CONFLICT;
      CHECK(store_and_wait(i) == expected);
    }
  }
  CHECK(MPI_Win_flush_all(small.handle) == MPI_SUCCESS);
}

int main(int argc, char** argv) {
  setenv("FARSIDE_CHECK", "strict", 1);
  MPI_Init(&argc, &argv);
  const int failed = run_catch(argc, argv);
  MPI_Finalize();
  return failed == 0 ? 0 : 1;
}

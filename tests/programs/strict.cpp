// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_CHECK=strict: accesses of one origin that conflict within its epoch are refused, both calls
// are named, and what is allowed is let through. Without it (argument lenient) all of it passes, as the
// results are not looked at.
#include "misuse.hpp"

namespace {

bool strict;
int rank;
int next;

// The second of two calls that conflict. `with`: how the report names the first.
void conflict(const std::function<int()>& call, const char* with, const char* what) {
  misuse::Stderr heard;
  const int code = call();
  const std::string text = heard.end();
  const int wanted = strict ? MPI_ERR_RMA_CONFLICT : MPI_SUCCESS;
  if (check::class_of(code) != wanted)
    check::fail(__FILE__, __LINE__, "class " + check::class_name(code) + ": " + text);
  for (const char* part : {with, what, ", target ", "MPI 4.0 section 12.7"}) {
    if (strict && text.find(part) == std::string::npos)
      check::fail(__FILE__, __LINE__, std::string("'") + part + "' is not said: " + text);
  }
}
#define CONFLICT(with, what, call) conflict([&] { return (call); }, with, what)

constexpr const char* kWindow = "window are in use by ";
constexpr const char* kBuffer = "of the local buffer, at ";

void at_the_target(MPI_Win window) {
  int out[8] = {};
  int in[8] = {};
  double numbers[4] = {};
  const auto put = [&](int at, int count) {
    return MPI_Put(out, count, MPI_INT, next, at, count, MPI_INT, window);
  };
  const auto get = [&](int at, int count) {
    return MPI_Get(in, count, MPI_INT, next, at, count, MPI_INT, window);
  };
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(put(0, 4));
  CONFLICT("MPI_Put (operation 1 ", kWindow, put(3, 2));
  CONFLICT("MPI_Put (operation 1 ", kWindow, get(0, 1));
  CHECK_MPI(put(4, 2));
  CONFLICT("MPI_Put (operation ", kWindow,
           MPI_Accumulate(out, 1, MPI_INT, next, 5, 1, MPI_INT, MPI_SUM, window));
  // A flush ends it, of this target.
  CHECK_MPI(MPI_Win_flush(next, window));
  CHECK_MPI(put(3, 2));
  CHECK_MPI(MPI_Win_flush_all(window));
  // A local flush gives the buffer back, no more.
  CHECK_MPI(put(3, 2));
  CHECK_MPI(MPI_Win_flush_local(next, window));
  CONFLICT("MPI_Put (operation ", kWindow, MPI_Get(out, 2, MPI_INT, next, 3, 2, MPI_INT, window));
  CHECK_MPI(MPI_Get(out, 2, MPI_INT, next, 12, 2, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush_all(window));
  // Gets meet, into other memory; accumulates of one type do, with any operation, in the order in which they
  // are made.
  CHECK_MPI(get(0, 4));
  CHECK_MPI(MPI_Get(in + 4, 4, MPI_INT, next, 2, 4, MPI_INT, window));
  CONFLICT("MPI_Get (operation ", kWindow, put(1, 1));
  CHECK_MPI(MPI_Win_flush_local(next, window));
  CHECK_MPI(MPI_Accumulate(out, 2, MPI_INT, next, 8, 2, MPI_INT, MPI_SUM, window));
  CHECK_MPI(MPI_Accumulate(out, 2, MPI_INT, next, 9, 2, MPI_INT, MPI_REPLACE, window));
  CHECK_MPI(MPI_Fetch_and_op(nullptr, in, MPI_INT, next, 9, MPI_NO_OP, window));
  CONFLICT("MPI_Accumulate (operation ", kWindow,
           MPI_Accumulate(numbers, 1, MPI_FLOAT, next, 8, 1, MPI_FLOAT, MPI_SUM, window));
  CONFLICT("MPI_Accumulate (operation ", kWindow, put(10, 1));
  CHECK_MPI(MPI_Win_unlock_all(window));
  // So does the end of the epoch.
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  CHECK_MPI(put(8, 4));
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(put(0, 4));
  CONFLICT("MPI_Put (operation ", kWindow, put(0, 4));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(put(0, 4));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
}

void between_the_bytes(MPI_Win window) {
  // Every second int, and those between: no byte in common.
  int out[4] = {};
  MPI_Datatype strided;
  CHECK_MPI(MPI_Type_vector(4, 1, 2, MPI_INT, &strided));
  CHECK_MPI(MPI_Type_commit(&strided));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window));
  CHECK_MPI(MPI_Put(out, 4, MPI_INT, next, 0, 1, strided, window));
  CHECK_MPI(MPI_Put(out, 4, MPI_INT, next, 1, 1, strided, window));
  CONFLICT("MPI_Put (operation ", kWindow, MPI_Put(out, 1, MPI_INT, next, 6, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_MPI(MPI_Type_free(&strided));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void in_local_memory(MPI_Win window) {
  int buffer[8] = {};
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  // Read by many; but not written meanwhile, nor read while it is written.
  CHECK_MPI(MPI_Put(buffer, 2, MPI_INT, next, 0, 2, MPI_INT, window));
  CHECK_MPI(MPI_Put(buffer, 2, MPI_INT, next, 2, 2, MPI_INT, window));
  CONFLICT("MPI_Put towards rank ", kBuffer, MPI_Get(buffer + 1, 1, MPI_INT, next, 8, 1, MPI_INT, window));
  CHECK_MPI(MPI_Get(buffer + 2, 2, MPI_INT, next, 8, 2, MPI_INT, window));
  CONFLICT("MPI_Get towards rank ", kBuffer, MPI_Put(buffer + 3, 1, MPI_INT, next, 12, 1, MPI_INT, window));
  CONFLICT("MPI_Get towards rank ", kBuffer, MPI_Get(buffer + 2, 1, MPI_INT, next, 10, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush(next, window));
  // A request that is complete gives its buffer back.
  for (int i = 0; i < 3; ++i) {
    CHECK_MPI(MPI_Rget(buffer, 2, MPI_INT, next, 8, 2, MPI_INT, window, &request));
    CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  CHECK_MPI(MPI_Rput(buffer, 2, MPI_INT, next, 8, 2, MPI_INT, window, &request));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Get(buffer, 2, MPI_INT, next, 12, 2, MPI_INT, window));
  CONFLICT("MPI_Put (operation ", kWindow, MPI_Put(buffer + 4, 2, MPI_INT, next, 8, 2, MPI_INT, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  strict = !program.has("lenient");
  rank = check::rank();
  next = (rank + 1) % check::size();
  check::Window window(program.memory(), 64 * sizeof(int), sizeof(int));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  check::section("at the target");
  at_the_target(window);
  check::section("between the bytes");
  between_the_bytes(window);
  check::section("in local memory");
  in_local_memory(window);
  check::section("MPI_Win_free");
  return 0;
}

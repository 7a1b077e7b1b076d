// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_CHECK=strict: conflicting accesses, of one origin or of several, are refused, and the report names both
// calls. Allowed accesses pass. Early stores to buffers and window memory are reported, and early loads of result
// buffers where the kernel permits that. Without strict checking (argument lenient) all of this passes, because the
// program does not check the results. With the argument fatal the first conflict ends the program.
#include <fcntl.h>
#include <functional>
#include <linux/userfaultfd.h>
#include <memory>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"
#include "stderr.hpp"

namespace {

bool strict;
int rank;
int next;
int last;

// Makes the second of two conflicting calls. `with`: the first call as the report names it.
void conflict(const std::function<int()>& call, const char* with, const char* what, const char* third = ", target ") {
  check::Stderr captured;
  const int code = call();
  const std::string text = captured.end();
  const int wanted = strict ? MPI_ERR_RMA_CONFLICT : MPI_SUCCESS;
  if (check::class_of(code) != wanted)
    check::fail(__FILE__, __LINE__, std::string(with) + what + ": class " + check::class_name(code) + ": " + text);
  for (const char* part : {with, what, third, "MPI 4.0 section 12."}) {
    if (strict && text.find(part) == std::string::npos)
      check::fail(__FILE__, __LINE__, std::string("'") + part + "' is not said: " + text);
  }
}
// A call that ends an epoch with an early store: the call is carried out, but returns the error class.
#define STORED(with, what, call) conflict([&] { return (call); }, with, what, "MPI_Win_")
#define CONFLICT(with, what, call) conflict([&] { return (call); }, with, what)

constexpr const char* kWindow = "window are in use by ";
constexpr const char* kBuffer = "of the local buffer, at ";

void barrier() { CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD)); }

void at_the_target(const check::Window& window) {
  int out[8] = {};
  int in[8] = {};
  double numbers[4] = {};
  const auto put = [&](int at, int count) { return MPI_Put(out, count, MPI_INT, next, at, count, MPI_INT, window); };
  const auto get = [&](int at, int count) { return MPI_Get(in, count, MPI_INT, next, at, count, MPI_INT, window); };
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(put(0, 4));
  CONFLICT("MPI_Put (operation 1 ", kWindow, put(3, 2));
  CONFLICT("; flush between the two, or let", kWindow, put(3, 2));
  CONFLICT("MPI_Put (operation 1 ", kWindow, get(0, 1));
  CHECK_MPI(put(4, 2));
  CONFLICT("MPI_Put (operation ", kWindow, MPI_Accumulate(out, 1, MPI_INT, next, 5, 1, MPI_INT, MPI_SUM, window));
  // A flush of this target ends the conflict.
  CHECK_MPI(MPI_Win_flush(next, window));
  CHECK_MPI(put(3, 2));
  CHECK_MPI(MPI_Win_flush_all(window));
  // A local flush frees only the buffer.
  CHECK_MPI(put(3, 2));
  CHECK_MPI(MPI_Win_flush_local(next, window));
  CONFLICT("MPI_Put (operation ", kWindow, MPI_Get(out, 2, MPI_INT, next, 3, 2, MPI_INT, window));
  CHECK_MPI(MPI_Get(out, 2, MPI_INT, next, 12, 2, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush_all(window));
  // Gets may overlap, into different memory. Accumulates of one type may overlap, with any operation, in their order.
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
  // The end of the epoch ends the conflict, too.
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  CHECK_MPI(put(8, 4));
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(put(0, 4));
  CONFLICT("; put an MPI_Win_fence between the two, or let", kWindow, put(0, 4));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(put(0, 4));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  const check::Group everybody(check::all_ranks());
  CHECK_MPI(MPI_Win_post(everybody, 0, window));
  CHECK_MPI(MPI_Win_start(everybody, 0, window));
  CHECK_MPI(put(0, 4));
  CONFLICT("; issue them in two epochs, or let", kWindow, put(0, 4));
  CHECK_MPI(MPI_Win_complete(window));
  CHECK_MPI(MPI_Win_wait(window));
  barrier();
}

void between_the_bytes(const check::Window& window) {
  // Every second int, and the ints between them: no common byte.
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
  barrier();
}

void in_local_memory(const check::Window& window) {
  int buffer[8] = {};
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  // Several operations may read a buffer, but none may write it meanwhile, nor read it while it is written.
  CHECK_MPI(MPI_Put(buffer, 2, MPI_INT, next, 0, 2, MPI_INT, window));
  CHECK_MPI(MPI_Put(buffer, 2, MPI_INT, next, 2, 2, MPI_INT, window));
  CONFLICT("MPI_Put towards rank ", kBuffer, MPI_Get(buffer + 1, 1, MPI_INT, next, 8, 1, MPI_INT, window));
  CHECK_MPI(MPI_Get(buffer + 2, 2, MPI_INT, next, 8, 2, MPI_INT, window));
  CONFLICT("MPI_Get towards rank ", kBuffer, MPI_Put(buffer + 3, 1, MPI_INT, next, 12, 1, MPI_INT, window));
  CONFLICT("MPI_Get towards rank ", kBuffer, MPI_Get(buffer + 2, 1, MPI_INT, next, 10, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush(next, window));
  // A complete request frees its buffer.
  for (int i = 0; i < 3; ++i) {
    CHECK_MPI(MPI_Rget(buffer, 2, MPI_INT, next, 8, 2, MPI_INT, window, &request));
    CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  CHECK_MPI(MPI_Rput(buffer, 2, MPI_INT, next, 8, 2, MPI_INT, window, &request));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Get(buffer, 2, MPI_INT, next, 12, 2, MPI_INT, window));
  CONFLICT("MPI_Rput (operation ", kWindow, MPI_Put(buffer + 4, 2, MPI_INT, next, 8, 2, MPI_INT, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  barrier();
}

// Stores and operations on the buffers of an operation with a request, and on the memory that it accesses, before the
// request is complete.
void before_a_request_is_complete(const check::Window& window) {
  constexpr const char* kByItself = " on window ";
  int out[8] = {};
  int in[8] = {};
  volatile int* const to_out = out;
  volatile int* const to_in = in;
  MPI_Request request = MPI_REQUEST_NULL;
  int done = 0;
  const auto rput = [&](int at, MPI_Request* of = nullptr) {
    CHECK_MPI(MPI_Rput(out, 2, MPI_INT, next, at, 2, MPI_INT, window, of != nullptr ? of : &request));
  };
  const auto rget = [&](int* into, int at, MPI_Request* of = nullptr) {
    CHECK_MPI(MPI_Rget(into, 2, MPI_INT, next, at, 2, MPI_INT, window, of != nullptr ? of : &request));
  };
  CHECK_MPI(MPI_Win_lock_all(0, window));
  // Stores: the call that completes the request reports them.
  rput(0);
  to_out[1] = to_out[1] + 1;
  conflict([&] { return MPI_Wait(&request, MPI_STATUS_IGNORE); }, "the origin buffer of MPI_Rput towards rank ",
           "has been changed since that call, before its request was complete", kByItself);
  CHECK(request == MPI_REQUEST_NULL);
  rget(in, 8);
  to_in[0] = 12345;
  conflict([&] { return MPI_Test(&request, &done, MPI_STATUS_IGNORE); }, "the result buffer of MPI_Rget towards rank ",
           "has been changed", kByItself);
  CHECK(done != 0 && request == MPI_REQUEST_NULL);
  rput(2);
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  to_out[1] = to_out[1] + 1;
  CHECK_MPI(MPI_Win_flush(next, window));
  // An earlier flush reports them, too. For freed requests only the flush does.
  rput(0);
  to_out[0] = to_out[0] + 1;
  STORED("the origin buffer of MPI_Rput towards rank ", "has been changed", MPI_Win_flush(next, window));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  rput(0);
  CHECK_MPI(MPI_Win_flush_local(next, window));
  to_out[0] = to_out[0] + 1;
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Win_flush(next, window));
  rput(0);
  CHECK_MPI(MPI_Request_free(&request));
  to_out[0] = to_out[0] + 1;
  STORED("the origin buffer of MPI_Rput towards rank ", "has been changed", MPI_Win_flush(next, window));
  // MPI_Request_get_status may report the completion first, and the program completes the request later.
  rget(in, 8);
  CHECK_MPI(MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE));
  while (done == 0) CHECK_MPI(MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE));
  to_in[0] = to_in[0] + 1;
  CHECK_MPI(MPI_Put(in, 2, MPI_INT, next, 12, 2, MPI_INT, window));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Win_flush(next, window));
  // Other operations, on the buffer and on the memory that the first accesses.
  rget(in, 8);
  CONFLICT("MPI_Rget towards rank ", kBuffer, MPI_Put(in + 1, 1, MPI_INT, next, 12, 1, MPI_INT, window));
  CONFLICT("complete its request or flush", kBuffer, MPI_Get(in + 1, 1, MPI_INT, next, 12, 1, MPI_INT, window));
  CONFLICT("MPI_Rget (operation ", kWindow, MPI_Put(out, 1, MPI_INT, next, 9, 1, MPI_INT, window));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Put(in + 1, 1, MPI_INT, next, 9, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush(next, window));
  CHECK_MPI(MPI_Raccumulate(out, 2, MPI_INT, next, 8, 2, MPI_INT, MPI_SUM, window, &request));
  CONFLICT("MPI_Raccumulate towards rank ", kBuffer, MPI_Get(out, 1, MPI_INT, next, 12, 1, MPI_INT, window));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Get(out, 1, MPI_INT, next, 12, 1, MPI_INT, window));
  CONFLICT("MPI_Raccumulate (operation ", kWindow, MPI_Get(in, 1, MPI_INT, next, 8, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush(next, window));
  CHECK_MPI(MPI_Rget_accumulate(out, 2, MPI_INT, in, 2, MPI_INT, next, 8, 2, MPI_INT, MPI_SUM, window, &request));
  CONFLICT("MPI_Rget_accumulate (operation ", kWindow, MPI_Get(in + 4, 1, MPI_INT, next, 8, 1, MPI_INT, window));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Get(in + 4, 1, MPI_INT, next, 8, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush(next, window));
  // Of several requests, only those that a call has completed.
  for (int round = 0; round < 2; ++round) {
    MPI_Request both[2];
    rget(in, 8, &both[0]);
    rget(in + 4, 8, &both[1]);
    int index = -1;
    int count = 0;
    if (round == 0) CHECK_MPI(MPI_Waitany(2, both, &index, MPI_STATUS_IGNORE));
    if (round == 1) CHECK_MPI(MPI_Waitsome(1, &both[1], &count, &index, MPI_STATUSES_IGNORE));
    const int other = round == 1 ? 0 : 1 - index;
    CONFLICT("MPI_Rget towards rank ", kBuffer, MPI_Put(in + 4 * other, 1, MPI_INT, next, 12, 1, MPI_INT, window));
    CHECK_MPI(MPI_Put(in + 4 * (1 - other), 1, MPI_INT, next, 12, 1, MPI_INT, window));
    CHECK_MPI(MPI_Waitall(2, both, MPI_STATUSES_IGNORE));
    CHECK_MPI(MPI_Put(in + 4 * other, 1, MPI_INT, next, 14, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_flush(next, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  // An unlock completes the operation, too; the request is completed later.
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  rput(0);
  CHECK_MPI(MPI_Win_unlock(next, window));
  to_out[0] = to_out[0] + 1;
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  barrier();
}

// From here on rank 0 and the last rank access rank 0's window.

void between_fences(const check::Window& window) {
  int out[4] = {};
  int in[4] = {};
  float numbers[4] = {};
  CHECK_MPI(MPI_Win_fence(0, window));
  if (rank == 0) CHECK_MPI(MPI_Put(out, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
  barrier();
  if (rank == last) {
    CONFLICT("MPI_Put of rank 0 (its operation ", kWindow, MPI_Get(in, 2, MPI_INT, 0, 3, 2, MPI_INT, window));
    CONFLICT("put an MPI_Win_fence between the two", kWindow, MPI_Put(out, 1, MPI_INT, 0, 0, 1, MPI_INT, window));
    CHECK_MPI(MPI_Get(in, 2, MPI_INT, 0, 4, 2, MPI_INT, window));
    CHECK_MPI(MPI_Accumulate(out, 4, MPI_INT, 0, 8, 4, MPI_INT, MPI_SUM, window));
  }
  barrier();
  if (rank == 0) {
    CHECK_MPI(MPI_Get(in, 2, MPI_INT, 0, 4, 2, MPI_INT, window));
    CHECK_MPI(MPI_Accumulate(out, 4, MPI_INT, 0, 10, 4, MPI_INT, MPI_SUM, window));
    CONFLICT("MPI_Accumulate of rank ", kWindow,
             MPI_Accumulate(numbers, 1, MPI_FLOAT, 0, 8, 1, MPI_FLOAT, MPI_SUM, window));
    CONFLICT("MPI_Accumulate of rank ", kWindow, MPI_Get(in + 2, 1, MPI_INT, 0, 8, 1, MPI_INT, window));
    CHECK_MPI(MPI_Fetch_and_op(nullptr, in + 2, MPI_INT, 0, 8, MPI_NO_OP, window));
  }
  CHECK_MPI(MPI_Win_fence(0, window));
  if (rank == last) {
    CHECK_MPI(MPI_Get(in, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
    CHECK_MPI(MPI_Put(out, 4, MPI_INT, 0, 8, 4, MPI_INT, window));
  }
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
}

void under_locks(const check::Window& window) {
  int out[4] = {};
  int in[4] = {};
  CHECK_MPI(MPI_Win_lock_all(0, window));
  // A barrier without a flush does not order the accesses.
  if (rank == 0) CHECK_MPI(MPI_Put(out, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
  barrier();
  if (rank == last) {
    CONFLICT("MPI_Put of rank 0 (its operation ", kWindow, MPI_Get(in, 1, MPI_INT, 0, 0, 1, MPI_INT, window));
  }
  barrier();
  if (rank == 0) CHECK_MPI(MPI_Win_flush_local(0, window));
  barrier();
  if (rank == last) {
    CONFLICT("MPI_Put of rank 0 (its operation ", kWindow, MPI_Get(in, 1, MPI_INT, 0, 0, 1, MPI_INT, window));
  }
  barrier();
  if (rank == 0) CHECK_MPI(MPI_Win_flush(0, window));
  barrier();
  if (rank == last) CHECK_MPI(MPI_Get(in, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
  if (rank == last) CHECK_MPI(MPI_Win_flush_local(0, window));
  barrier();
  if (rank == 0) CHECK_MPI(MPI_Put(out, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
  if (rank == 0) CHECK_MPI(MPI_Win_flush_all(window));
  barrier();
  // A counter of all ranks, and a complete request.
  for (int i = 0; i < 20; ++i) {
    CHECK_MPI(MPI_Fetch_and_op(out, in, MPI_INT, 0, 5, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush(0, window));
  }
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Rget(in, 1, MPI_INT, 0, 0, 1, MPI_INT, window, &request));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  // An incomplete request is still under way, also for other ranks.
  barrier();
  if (rank == 0) CHECK_MPI(MPI_Rget(in, 4, MPI_INT, 0, 8, 4, MPI_INT, window, &request));
  barrier();
  if (rank == last) {
    CONFLICT("MPI_Get of rank 0 (its operation ", kWindow, MPI_Put(out, 1, MPI_INT, 0, 8, 1, MPI_INT, window));
  }
  barrier();
  if (rank == 0) CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  barrier();
  if (rank == last) CHECK_MPI(MPI_Put(out, 1, MPI_INT, 0, 8, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  barrier();
  // Exclusive locks order accesses, and so do shared locks with a barrier.
  for (int i = 0; i < 20; ++i) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
    CHECK_MPI(MPI_Get(in, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    CHECK_MPI(MPI_Put(out, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  for (int turn = 0; turn <= last; ++turn) {
    barrier();
    if (turn != rank) continue;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
    CHECK_MPI(MPI_Put(out, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  barrier();
}

void within_an_exposure(const check::Window& window) {
  int out[4] = {};
  int in[4] = {};
  const check::Group origins({0, last});
  const check::Group target({0});
  for (int round = 0; round < 2; ++round) {
    if (rank == 0) CHECK_MPI(MPI_Win_post(origins, 0, window));
    if (rank == 0 || rank == last) CHECK_MPI(MPI_Win_start(target, 0, window));
    if (rank == 0) {
      CHECK_MPI(MPI_Put(out, 2, MPI_INT, 0, 0, 2, MPI_INT, window));
      CHECK_MPI(MPI_Get(in, 2, MPI_INT, 0, 2, 2, MPI_INT, window));
      CHECK_MPI(MPI_Win_complete(window));
    }
    barrier();
    // A put is complete at the target's wait, a get when its origin has completed.
    if (rank == last) {
      CONFLICT("let the target post for one after the other", "MPI_Put of rank 0 (its operation ",
               MPI_Get(in, 2, MPI_INT, 0, 0, 2, MPI_INT, window));
      CHECK_MPI(MPI_Put(out, 2, MPI_INT, 0, 2, 2, MPI_INT, window));
      CHECK_MPI(MPI_Win_complete(window));
    }
    if (rank == 0) CHECK_MPI(MPI_Win_wait(window));
    barrier();
  }
}

// A lock_all may begin and stay while a rank is exposed. Its operations on that rank are refused, with or without a
// conflict.
void lock_all_on_an_exposed_target(const check::Window& window) {
  const check::Group to_0({0}), to_last({last});
  int value = 0;
  const auto get = [&] { return MPI_Get(&value, 1, MPI_INT, last, 0, 1, MPI_INT, window); };
  if (rank == 0) {
    CHECK_MPI(MPI_Win_lock_all(0, window));
    CHECK_MPI(get());
    CHECK_MPI(MPI_Win_flush(last, window));
  }
  barrier();
  if (rank == last) CHECK_MPI(MPI_Win_post(to_0, 0, window));
  barrier();
  if (rank == 0) {
    if (strict) {
      CHECK_REFUSED(get(), MPI_ERR_RMA_CONFLICT);
    } else {
      CHECK_MPI(get());
    }
    CHECK_MPI(MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_unlock_all(window));
    CHECK_MPI(MPI_Win_start(to_last, 0, window));
    CHECK_MPI(MPI_Win_complete(window));
  }
  if (rank == last) CHECK_MPI(MPI_Win_wait(window));
  barrier();
}

// A rank that completes its operation waits for one that is late by 10 ms: in most windows, unless the machine is
// overloaded.
void accesses_of_a_late_rank(const check::Window&) {
  int found = 0;
  for (int round = 0; round < (strict ? 50 : 1) && found == 0; ++round) {
    const int value = 0;
    const check::Window window(check::Memory::kAllocate, 64, 4);
    CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    barrier();
    CHECK_MPI(MPI_Win_lock_all(0, window));
    if (rank == 0) CHECK_MPI(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window));
    if (rank == last) {
      usleep(10'000);
      check::Stderr captured;
      found = check::class_of(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window)) == MPI_ERR_RMA_CONFLICT ? 1 : 0;
      captured.end();
    }
    CHECK_MPI(MPI_Win_unlock_all(window));
    CHECK_MPI(MPI_Bcast(&found, 1, MPI_INT, last, MPI_COMM_WORLD));
  }
  CHECK_EQ(found, strict ? 1 : 0);
}

void buffers_in_the_window(const check::Window& window) {
  int* const own = window.as<int>();
  // Rank 0 puts from its own window to another part of rank 1's.
  int out[4] = {};
  CHECK_MPI(MPI_Win_lock_all(0, window));
  if (rank == 0) CHECK_MPI(MPI_Put(own + 16, 4, MPI_INT, 1, 32, 4, MPI_INT, window));
  barrier();
  if (rank == last) {
    CONFLICT("window are in use by the local buffer of MPI_Put of rank 0", "(its operation ",
             MPI_Put(out, 1, MPI_INT, 0, 19, 1, MPI_INT, window));
    CHECK_MPI(MPI_Get(out, 1, MPI_INT, 0, 19, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    CHECK_MPI(MPI_Put(out, 1, MPI_INT, 0, 20, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_flush(0, window));
  }
  barrier();
  // The other order: a local buffer at the place of an earlier put.
  if (rank == 0) CHECK_MPI(MPI_Win_flush_local(1, window));
  barrier();
  if (rank == last) CHECK_MPI(MPI_Put(out, 1, MPI_INT, 0, 19, 1, MPI_INT, window));
  barrier();
  if (rank == 0) {
    CONFLICT("in which the local buffer lies, are in use by MPI_Put of rank ", "(its operation ",
             MPI_Put(own + 16, 4, MPI_INT, 1, 40, 4, MPI_INT, window));
  }
  barrier();
  CHECK_MPI(MPI_Win_unlock_all(window));
  barrier();
}

void stores(const check::Window& window) {
  int* const own = window.as<int>();
  // A store to the buffer of an operation.
  int out[4] = {};
  int in[4] = {};
  volatile int* const to_out = out;
  volatile int* const to_in = in;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  CHECK_MPI(MPI_Put(out, 4, MPI_INT, next, 0, 4, MPI_INT, window));
  to_out[3] = 7;
  STORED("the origin buffer of MPI_Put towards rank ", "has been changed", MPI_Win_flush(next, window));
  CHECK_MPI(MPI_Get(in, 4, MPI_INT, next, 8, 4, MPI_INT, window));
  to_in[0] = 12345;
  STORED("the result buffer of MPI_Get towards rank ", "has been changed", MPI_Win_unlock(next, window));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  CHECK_MPI(MPI_Put(out, 4, MPI_INT, next, 0, 4, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush_local(next, window));
  to_out[3] = 8;
  CHECK_MPI(MPI_Win_unlock(next, window));
  barrier();
  // A store to memory that another rank has accessed, with fence and with post.
  volatile int* const mine = own;
  for (int round = 0; round < 2; ++round) {
    CHECK_MPI(MPI_Win_fence(0, window));
    if (rank == last && round == 0) CHECK_MPI(MPI_Get(in, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
    if (rank == last && round == 1) CHECK_MPI(MPI_Accumulate(out, 4, MPI_INT, 0, 0, 4, MPI_INT, MPI_SUM, window));
    barrier();
    if (rank == 0) {
      mine[3] = mine[3] + 1;
      STORED(round == 0 ? "after MPI_Get of rank " : "after MPI_Accumulate of rank ", "stored to by this rank",
             MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
    } else {
      CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
    }
    barrier();
  }
  const check::Group origins({last});
  const check::Group target({0});
  if (rank == 0) CHECK_MPI(MPI_Win_post(origins, 0, window));
  if (rank == last) {
    CHECK_MPI(MPI_Win_start(target, 0, window));
    CHECK_MPI(MPI_Put(out, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
    CHECK_MPI(MPI_Win_complete(window));
  }
  barrier();
  if (rank == 0) {
    mine[4] = 5;  // beside the accessed bytes
    mine[0] = mine[0] + 1;
    STORED("after MPI_Put of rank ", "stored to by this rank", MPI_Win_wait(window));
    mine[0] = 0;
  }
  barrier();
  // A store to memory that another rank accesses later in the epoch, with fence and with post.
  for (int round = 0; round < 4; ++round) {
    const bool fences = round < 2, synchronizes = round % 2 == 1;
    if (fences) CHECK_MPI(MPI_Win_fence(0, window));
    if (!fences && rank == 0) CHECK_MPI(MPI_Win_post(origins, 0, window));
    if (rank == 0) mine[0] = mine[0] + 1;
    if (rank == 0 && synchronizes) CHECK_MPI(MPI_Win_sync(window));
    barrier();
    if (rank == last) {
      if (!fences) CHECK_MPI(MPI_Win_start(target, 0, window));
      CHECK_MPI(MPI_Put(out, 4, MPI_INT, 0, 0, 4, MPI_INT, window));
      if (!fences) CHECK_MPI(MPI_Win_complete(window));
    }
    const auto end = [&] {
      if (fences) return MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
      return rank == 0 ? MPI_Win_wait(window) : MPI_SUCCESS;
    };
    if (rank == 0 && !synchronizes)
      STORED("before MPI_Put of rank ", "stored to by this rank", end());
    else
      CHECK_MPI(end());
    barrier();
  }
  // All ranks may add, and the target may store when it knows that all accesses are over.
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Accumulate(out, 4, MPI_INT, 0, 0, 4, MPI_INT, MPI_SUM, window));
  barrier();
  CHECK_MPI(MPI_Accumulate(out, 4, MPI_INT, 0, 0, 4, MPI_INT, MPI_SUM, window));
  if (rank == 0) mine[4] = 6;
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  if (rank == 0) mine[0] = 0;
  barrier();
}

// A rank may use a new window although its target is still about to return from the creation.
void through_a_new_window(const check::Window& window) {
  int out[1] = {};
  for (int round = 0; round < 20; ++round) {
    MPI_Win other = MPI_WIN_NULL;
    CHECK_MPI(MPI_Win_create(window.as<int>(), 64, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &other));
    CHECK_MPI(MPI_Win_set_errhandler(other, MPI_ERRORS_RETURN));
    CHECK_MPI(MPI_Win_lock_all(0, window));
    CHECK_MPI(MPI_Win_lock_all(0, other));
    CHECK_MPI(MPI_Put(out, 1, MPI_INT, next, 3, 1, MPI_INT, window));
    CONFLICT("MPI_Put of rank ", "on another window", MPI_Put(out, 1, MPI_INT, next, 3, 1, MPI_INT, other));
    CHECK_MPI(MPI_Win_unlock_all(other));
    CHECK_MPI(MPI_Win_unlock_all(window));
    CHECK_MPI(MPI_Win_free(&other));
  }
}

// Two windows with common memory: the second begins at the 16th integer of the first.
void through_two_windows(const check::Window& window) {
  constexpr const char* kOther = "on another window";
  int out[4] = {};
  int in[4] = {};
  MPI_Win other = MPI_WIN_NULL;
  CHECK_MPI(
      MPI_Win_create(window.as<int>() + 16, 16 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &other));
  CHECK_MPI(MPI_Win_set_errhandler(other, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(MPI_Win_lock_all(0, other));
  if (rank == 0) {
    // One origin.
    CHECK_MPI(MPI_Put(out, 4, MPI_INT, last, 16, 4, MPI_INT, window));
    CHECK_MPI(MPI_Put(out, 4, MPI_INT, last, 4, 4, MPI_INT, other));
    CONFLICT("MPI_Put of rank 0 (its operation ", kOther, MPI_Get(in, 1, MPI_INT, last, 3, 1, MPI_INT, other));
    CONFLICT("MPI_Put of rank 0 (its operation ", kOther, MPI_Put(out, 1, MPI_INT, last, 20, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_flush(last, window));
    CHECK_MPI(MPI_Get(in, 4, MPI_INT, last, 0, 4, MPI_INT, other));
    CHECK_MPI(MPI_Get(in, 0, MPI_INT, last, 16, 0, MPI_INT, window));
    // Its local buffer.
    CONFLICT("MPI_Get towards rank ", kOther, MPI_Put(in, 1, MPI_INT, last, 40, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_flush(last, other));
    CHECK_MPI(MPI_Put(in, 1, MPI_INT, last, 40, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_flush(last, window));
    // Two origins. Accumulates are atomic only by way of one window.
    CHECK_MPI(MPI_Get(in, 1, MPI_INT, last, 16, 1, MPI_INT, window));
    CHECK_MPI(MPI_Accumulate(out, 1, MPI_INT, last, 17, 1, MPI_INT, MPI_SUM, window));
  }
  barrier();
  if (rank == last) {
    CHECK_MPI(MPI_Get(in, 1, MPI_INT, last, 0, 1, MPI_INT, other));
    CHECK_MPI(MPI_Win_flush(last, other));
    CONFLICT("MPI_Get of rank 0 (its operation ", kOther, MPI_Put(out, 1, MPI_INT, last, 0, 1, MPI_INT, other));
    CONFLICT("MPI_Accumulate of rank 0 (its operation ", "access this memory through one window",
             MPI_Accumulate(out, 1, MPI_INT, last, 1, 1, MPI_INT, MPI_SUM, other));
    // A local buffer in the memory of the other window.
    CONFLICT("in which the local buffer lies", kOther,
             MPI_Put(window.as<int>() + 17, 1, MPI_INT, 0, 8, 1, MPI_INT, other));
  }
  barrier();
  if (rank == 0) CHECK_MPI(MPI_Win_flush(last, window));
  barrier();
  if (rank == last) CHECK_MPI(MPI_Accumulate(out, 2, MPI_INT, last, 0, 2, MPI_INT, MPI_SUM, other));
  CHECK_MPI(MPI_Win_unlock_all(other));
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Win_free(&other));
  barrier();
}

// accumulate_ops is same_op_no_op, unless the program says otherwise.
void by_different_ops(const check::Window& window) {
  int one = 1, two = 2, result = 0;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  if (rank == 0) CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window));
  barrier();
  if (rank == last) {
    CONFLICT("MPI_Accumulate of rank 0 (its operation ", "let both use one MPI_Op",
             MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_REPLACE, window));
    CONFLICT("MPI_Accumulate of rank 0 (its operation ", "accumulate_ops",
             MPI_Fetch_and_op(&one, &result, MPI_INT, 0, 0, MPI_BXOR, window));
    CHECK_MPI(MPI_Fetch_and_op(&one, &result, MPI_INT, 0, 0, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    CHECK_MPI(MPI_Fetch_and_op(nullptr, &result, MPI_INT, 0, 0, MPI_NO_OP, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    CHECK_MPI(MPI_Compare_and_swap(&one, &two, &result, MPI_INT, 0, 0, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_REPLACE, window));
  }
  barrier();
  if (rank == 0) CHECK_MPI(MPI_Win_flush(0, window));
  barrier();
  if (rank == last) CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_REPLACE, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  barrier();
}

// Whether the kernel lets this process see its own accesses: userfaultfd(2) with UFFDIO_MOVE.
bool sees_loads() {
  const int faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  uffdio_api api{UFFD_API, std::uint64_t{1} << 16, 0};
  const bool sees = faults >= 0 && ioctl(faults, UFFDIO_API, &api) == 0;
  close(faults);
  return sees;
}

void loads(const check::Window& window) {
  if (strict && !sees_loads()) return;
  constexpr const char* kLoaded = " has been loaded in ";
  int before = 11;
  int in[4] = {};
  int after = 12;
  volatile int* const from = in;
  volatile int *const beside = &before, *const behind = &after;
  int sum = 0;
  const auto heap = std::make_unique<int[]>(4096);
  volatile int* const on_heap = heap.get() + 2040;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(MPI_Get(in, 4, MPI_INT, next, 0, 4, MPI_INT, window));
  sum += *beside + from[2];
  STORED("the result buffer of MPI_Get towards rank ", kLoaded, MPI_Win_flush(next, window));
  CHECK_MPI(MPI_Get(heap.get() + 2040, 20, MPI_INT, next, 0, 20, MPI_INT, window));
  sum += on_heap[-1] + on_heap[20] + on_heap[19];
  STORED("the result buffer of MPI_Get towards rank ", kLoaded, MPI_Win_flush_all(window));
  CHECK_MPI(MPI_Fetch_and_op(&before, in + 1, MPI_INT, next, 0, MPI_SUM, window));
  sum += from[1];
  STORED("the result buffer of MPI_Get_accumulate or MPI_Fetch_and_op towards rank ", kLoaded,
         MPI_Win_flush_local(next, window));
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Win_flush(next, window));
  CHECK_MPI(MPI_Rget(in, 2, MPI_INT, next, 0, 2, MPI_INT, window, &request));
  sum += from[0];
  conflict([&] { return MPI_Wait(&request, MPI_STATUS_IGNORE); }, "the result buffer of MPI_Rget towards rank ",
           kLoaded, " on window ");
  // Allowed: what lies beside the buffer, by the program, the kernel and a child; and the buffer once it is complete.
  CHECK_MPI(MPI_Get(in, 4, MPI_INT, next, 0, 4, MPI_INT, window));
  *behind = *behind + *beside;
  int ends[2] = {}, read_back = 0;
  CHECK_EQ(pipe(ends), 0);
  CHECK_EQ(write(ends[1], &before, sizeof before), static_cast<ssize_t>(sizeof before));
  CHECK_EQ(read(ends[0], &read_back, sizeof read_back), static_cast<ssize_t>(sizeof read_back));
  CHECK_EQ(read_back, before);
  int status = -1;
  if (const pid_t child = fork(); child == 0) {
    _exit(*behind == 23 ? 0 : 1);
  } else {
    CHECK_EQ(waitpid(child, &status, 0), child);
  }
  CHECK_EQ(status, 0);
  close(ends[0]);
  close(ends[1]);
  CHECK_MPI(MPI_Win_flush_local(next, window));
  sum += from[3];
  CHECK_MPI(MPI_Rget(in, 2, MPI_INT, next, 0, 2, MPI_INT, window, &request));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  sum += from[0];
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Get(in, 4, MPI_INT, next, 0, 4, MPI_INT, window));
  barrier();
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  sum += from[3];
  CHECK(sum != 1);
  barrier();
}

// Stores beside a watched buffer, each of which the watch steps over: it gives up, says so, and the program ends.
void beside_a_buffer(const check::Window& window) {
  constexpr int kCalls = 40, kStores = 300;
  struct {
    int in = 0;
    volatile int beside = 0;
  } here;
  check::Stderr captured;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int call = 0; call < kCalls; ++call) {
    CHECK_MPI(MPI_Get(&here.in, 1, MPI_INT, next, 0, 1, MPI_INT, window));
    for (int i = 0; i < kStores; ++i) here.beside = here.beside + 1;
    CHECK_MPI(MPI_Win_flush(next, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_EQ(here.beside, kCalls * kStores);
  const bool told = captured.end().find("early loads of result buffers are seen less often") != std::string::npos;
  CHECK(!told || strict);
  barrier();
}

// A flush that never completes anything, while another rank's operations stay under way.
void idle_flushes(const check::Window&) {
  for (const bool idle : {true, false}) {
    int value = 0;
    auto window = std::make_unique<check::Window>(check::Memory::kAllocate, 64, 4);
    CHECK_MPI(MPI_Win_lock_all(0, *window));
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, rank, 1, MPI_INT, *window));
    for (int target = 0; target <= last; ++target) {
      if (target == next && idle) continue;
      CHECK_MPI(MPI_Win_flush(target, *window));
    }
    CHECK_MPI(MPI_Win_unlock_all(*window));
    check::Stderr captured;
    window.reset();
    const std::string text = captured.end();
    const bool hinted = text.find("have completed nothing") != std::string::npos;
    if (hinted != (strict && idle)) check::fail(__FILE__, __LINE__, "said: " + text);
    barrier();
  }
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  strict = !program.has("lenient");
  rank = check::rank();
  next = (rank + 1) % check::size();
  last = check::size() - 1;
  check::Window window(program.memory(), 64 * sizeof(int), sizeof(int));
  if (!program.has("fatal")) CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const check::Section<const check::Window&> sections[] = {
      {"at the target", at_the_target},
      {"loads", loads},
      {"between the bytes", between_the_bytes},
      {"in local memory", in_local_memory},
      {"before a request is complete", before_a_request_is_complete},
      {"between fences", between_fences},
      {"under locks", under_locks},
      {"within an exposure", within_an_exposure},
      {"a lock_all on an exposed target", lock_all_on_an_exposed_target},
      {"accesses of a late rank", accesses_of_a_late_rank},
      {"buffers in the window", buffers_in_the_window},
      {"stores", stores},
      {"through two windows", through_two_windows},
      {"through a new window", through_a_new_window},
      {"by different MPI_Ops", by_different_ops},
      {"flushes of idle targets", idle_flushes},
      {"stores beside a buffer", beside_a_buffer},
  };
  check::run(sections, window);
  check::section("MPI_Win_free");
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/runtime_progress.hpp"

#include <atomic>

#include <mpi.h>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/imported_call.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

// Moves the runtime's messages. MPI_Request_get_status on a request that never completes enters the progress engine of
// both runtimes and touches no message. MPICH 4.0's MPI_Iprobe on MPI_COMM_SELF, or with MPI_PROC_NULL, does not enter
// the engine.
void move_runtime() {
  int flag = 0;
  // The runtime reports an error of a message to the owner of that message, so the result here says nothing.
  (void)runtime().Request_get_status(library().progressed_by, &flag, MPI_STATUS_IGNORE);
}

// Returns the number of events: the engine may yield if there are none. Any thread that is in MPI calls it, also
// several at once.
int serve_endpoint() { return Process::instance().poll_from_runtime() ? 1 : 0; }

// From opal/runtime/opal_progress.h of Open MPI 1.3 to 6.0. Returns false if there is no such function.
using Registration = int(int (*)());
bool change_open_mpi(const char* name) {
  auto* const change = reinterpret_cast<Registration*>(find_behind_if_there(name));
  if (change != nullptr) change(serve_endpoint);
  return change != nullptr;
}

// unsigned ucp_worker_progress(ucp_worker_h), since UCX 1.0. It returns nonzero if something moved.
using MoveWorker = unsigned(void*);
constexpr const char* kMoveWorker = "ucp_worker_progress";

std::atomic<MoveWorker*> move_worker{nullptr};  // the function to which the runtime's calls went before

unsigned move_and_serve(void* worker) {
  const unsigned moved = move_worker.load(std::memory_order_acquire)(worker);
  return Process::instance().poll_from_runtime() ? moved + 1 : moved;
}

// The calls of the runtime's library only: another user of UCX may have another copy of it, with its own workers.
ImportedCall& engine_call() {
  static ImportedCall call(reinterpret_cast<const void*>(runtime().Finalize), kMoveWorker);
  return call;
}

bool redirect_mpich() {
  move_worker.store(reinterpret_cast<MoveWorker*>(engine_call().original()), std::memory_order_release);
  return engine_call().redirect(reinterpret_cast<void*>(move_and_serve));
}

void serve_from_engine() {
  if (is_open_mpi() ? change_open_mpi("opal_progress_register") : redirect_mpich()) return;
  log(LogLevel::kInfo, "the runtime has no {}: threads that wait in MPI do not serve windows, the progress thread does",
      is_open_mpi() ? "opal_progress_register" : kMoveWorker);
}

void leave_engine() {
  if (is_open_mpi()) {
    change_open_mpi("opal_progress_unregister");
  } else {
    engine_call().restore();
  }
}

}  // namespace

Status RuntimeProgress::connect() {
  const auto query = [](void*, MPI_Status*) { return static_cast<int>(MPI_SUCCESS); };
  const auto release = [](void*) { return static_cast<int>(MPI_SUCCESS); };
  const auto cancel = [](void*, int) { return static_cast<int>(MPI_SUCCESS); };
  if (runtime().Grequest_start(query, release, cancel, nullptr, &never_complete_) != MPI_SUCCESS) {
    return Error{ErrorKind::kOther, "the runtime made no request to progress by"};
  }
  library().progressed_by = never_complete_;
  Process::instance().set_runtime_progress(move_runtime);
  serve_from_engine();
  return {};
}

void RuntimeProgress::disconnect() {
  if (never_complete_ == MPI_REQUEST_NULL) return;
  leave_engine();
  Process::instance().set_runtime_progress(nullptr);
  // MPI_Wait would not return for a request that is not complete.
  if (runtime().Grequest_complete(never_complete_) != MPI_SUCCESS) return;
  // MPI_Wait on a complete request does not enter the progress engine; MPI_Request_free does. If the engine answers an
  // on-node peer that is in MPI_Finalize already, MPICH's MPI_Finalize over UCX's tcp never ends at this rank.
  (void)runtime().Wait(&never_complete_, MPI_STATUS_IGNORE);
}

}  // namespace farside::pmpi

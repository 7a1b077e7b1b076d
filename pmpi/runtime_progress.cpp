// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime_progress.hpp"

#include <dlfcn.h>
#include <mpi.h>

#include <atomic>
#include <cstdlib>

#include "pmpi/runtime.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

MPI_Request never_complete = MPI_REQUEST_NULL;

// Moves messages of the runtime that this process owes to others. Asking for the status of a request that never
// completes enters the progress engine of both runtimes and touches no message; MPICH 4.0's MPI_Iprobe on
// MPI_COMM_SELF, or with MPI_PROC_NULL, does not enter it.
void move_runtime() {
  int flag = 0;
  // What the runtime finds wrong while it moves is told to those whose messages these are.
  (void)runtime().Request_get_status(never_complete, &flag, MPI_STATUS_IGNORE);
}

#if defined(OPEN_MPI)
// What it returns counts as events: where there are none, the engine may yield. Called by any thread that is in MPI, and by several at once.
int serve_endpoint() { return Process::instance().poll_from_runtime() ? 1 : 0; }

// opal/runtime/opal_progress.h of Open MPI 1.3 to 5.0.
using Registration = int(int (*)());
void change_engine(const char* name) {
  auto* const change = reinterpret_cast<Registration*>(dlsym(RTLD_DEFAULT, name));
  if (change == nullptr) return log(LogLevel::kInfo, "the runtime has no {}: who waits in MPI serves no windows, the progress thread does", name);
  change(serve_endpoint);
}
void serve_from_engine() { change_engine("opal_progress_register"); }
void leave_engine() { change_engine("opal_progress_unregister"); }
#elif defined(MPICH_VERSION)
std::atomic<bool> engine_serves{false};
void serve_from_engine() { engine_serves.store(true, std::memory_order_relaxed); }
void leave_engine() { engine_serves.store(false, std::memory_order_relaxed); }
#endif

}  // namespace

Status connect_progress() {
  const auto query = [](void*, MPI_Status*) { return static_cast<int>(MPI_SUCCESS); };
  const auto release = [](void*) { return static_cast<int>(MPI_SUCCESS); };
  const auto cancel = [](void*, int) { return static_cast<int>(MPI_SUCCESS); };
  if (PMPI_Grequest_start(query, release, cancel, nullptr, &never_complete) != MPI_SUCCESS) {
    return Error{ErrorKind::kOther, "the runtime made no request to progress by"};
  }
  Process::instance().set_runtime_progress(move_runtime);
  serve_from_engine();
  return {};
}

void disconnect_progress() {
  if (never_complete == MPI_REQUEST_NULL) return;
  leave_engine();
  Process::instance().set_runtime_progress(nullptr);
  // One that is not complete would be waited for for ever.
  if (PMPI_Grequest_complete(never_complete) != MPI_SUCCESS) return;
  // Waiting for what is complete progresses nothing, and freeing it does: MPICH's MPI_Finalize over UCX's tcp never ends at a rank
  // that between its last call and this one has answered a neighbour which is in it already.
  (void)runtime().Wait(&never_complete, MPI_STATUS_IGNORE);
}

}  // namespace farside::pmpi

#if defined(MPICH_VERSION)
// unsigned ucp_worker_progress(ucp_worker_h), since UCX 1.0: how many things moved. Found before UCX's own, as farside's library comes before
// the runtime's.
extern "C" [[gnu::visibility("default")]] unsigned ucp_worker_progress(void* worker) {
  using Original = unsigned(void*);
  static Original* const original = [] {
    void* found = dlsym(RTLD_NEXT, "ucp_worker_progress");
    // A runtime that was loaded for its user alone (dlopen without RTLD_GLOBAL) has its UCX likewise.
    if (found == nullptr) {
      if (void* const ucx = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD)) found = dlsym(ucx, "ucp_worker_progress");
    }
    if (found == nullptr) {
      farside::log(farside::LogLevel::kError, "no ucp_worker_progress behind farside: preload the library, or link it before the MPI library");
      std::abort();
    }
    return reinterpret_cast<Original*>(found);
  }();
  const unsigned moved = original(worker);
  if (!farside::pmpi::engine_serves.load(std::memory_order_relaxed)) return moved;
  // The endpoint may itself be one of UCX (libfabric's provider ucx).
  static thread_local bool inside = false;
  if (inside) return moved;
  inside = true;
  const bool more = farside::Process::instance().poll_from_runtime();
  inside = false;
  return more ? moved + 1 : moved;
}
#endif

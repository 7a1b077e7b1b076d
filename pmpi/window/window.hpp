// SPDX-License-Identifier: BSD-3-Clause
// The window behind a handle: one MPI_Win that farside carries. Its calls are in parts: operations.hpp,
// passive_target.hpp and active_target.hpp, whose try_ functions are the fast path of the most frequent ones. The
// window itself has what concerns its handle, group, name, attributes, hints and memory, and wraps the calls outside
// the fast path (calls.cpp).
//
// Thread safety: any thread, after expect_threads() or if the window was made with `threaded`. Errors: the MPI error
// class in the Fault.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include <mpi.h>

#include "pmpi/fault.hpp"
#include "pmpi/window/active_target.hpp"
#include "pmpi/window/hints.hpp"
#include "pmpi/window/notifications.hpp"
#include "pmpi/window/operations.hpp"
#include "pmpi/window/passive_target.hpp"
#include "pmpi/window/wait_reports.hpp"
#include "pmpi/window/window_state.hpp"

namespace farside::pmpi {

class Window {
 public:
  struct Attributes {
    void* base = nullptr;
    MPI_Aint size = 0;
    int displacement_unit = 1;
    int flavor = 0;
    int model = MPI_WIN_UNIFIED;
  };
  // Owns its arguments. The units of the space are the displacement units of the ranks. `barriers`: the schedule of
  // this rank, which must match the schedules of the other ranks. `global_lock_home` is the rank of the global lock,
  // the same on all ranks, or WindowLocks::kNoGlobalLock. `logs` is the memory of the logs with FARSIDE_CHECK=strict
  // (LogSpace), else null. `id` is the same on all ranks, and unique.
  Window(MPI_Win handle, MPI_Group group, const Attributes& attributes, std::unique_ptr<Space> space,
         std::shared_ptr<const epochs::BarrierSchedule> barriers, int global_lock_home, Hints hints, bool threaded,
         Check check, std::unique_ptr<Space> logs, std::uint64_t id);

  MPI_Win handle() const { return handle_; }
  // Views, to be used at once.
  Operations operations() { return Operations(state_); }
  PassiveTarget passive() { return PassiveTarget(state_); }
  ActiveTarget active() { return ActiveTarget(state_); }
  Notifications notifications() { return Notifications(state_); }
  WaitReports reports() { return WaitReports(state_); }
  WindowState& state() { return state_; }

  // The calls outside the fast path, with what wraps them: copies of GPU memory, window statistics (FARSIDE_STATS,
  // FARSIDE_TRACE) and FARSIDE_CHECK=strict. The parts, which carry out the calls, know nothing of these.
  //
  // An operation of which the constructor has set the arguments.
  Status operate(Operation& operation);
  // The program has completed a request. `watched`: the number of its operation in FARSIDE_CHECK=strict, or 0.
  Status request_completed(std::uint64_t watched);
  Status fence(int assert);
  Status post(MPI_Group group, int assert);
  Status start(MPI_Group group, int assert);
  Status complete();
  Status wait();
  Status test(int* flag);
  Status lock(int lock_type, int rank, int assert);
  Status unlock(int rank);
  Status lock_all(int assert);
  Status unlock_all();
  Status wait_notified(int counter, MPI_Count threshold);
  Status sync();
  // Local completion is completion at the target, but for FARSIDE_CHECK=strict, which distinguishes them.
  Status flush(int rank) { return flush_target(rank, false); }
  Status flush_local(int rank) { return flush_target(rank, true); }
  Status flush_all() { return flush_targets(false); }
  Status flush_local_all() { return flush_targets(true); }

  bool threaded() const { return state_.threaded(); }

  // Another thread may report a request that it has completed while this one frees the window: MPI_Win_free waits until
  // none holds the window.
  // How many threads hold it. They may let go of it after its end.
  std::shared_ptr<std::atomic<std::uint32_t>> holds() const { return holds_; }
  bool is_held() const { return *holds_ != 0; }

  // Whether the window may be freed now. end() is collective: after it all operations of all ranks are complete or have
  // failed, and the caller frees the handle and destroys the window.
  Status check_free() {
    return state_.allow([](auto& epoch) { return epoch.free(); });
  }
  Status end();

  // Dynamic memory (MPI 4.0 section 12.2.4).
  Status attach(const void* base, MPI_Aint size);
  Status detach(const void* base);

  // Shared memory (MPI 4.1 section 12.2.3); int and MPI_Aint units. Local.
  template <class Unit>
  Status shared_query(int rank, MPI_Aint* size, Unit* unit, void** base) const {
    Space::MappedData found;
    if (Status o = find_mapped(rank, found); !o) return o;
    *size = static_cast<MPI_Aint>(found.bytes);
    *unit = static_cast<Unit>(found.unit);
    *base = found.base;
    return {};
  }

  // Sets the name that the program has given to the window, for messages and statistics.
  void named(const char* name);

  // Hints (MPI 4.0 section 12.2.7).
  Status set_info(MPI_Info info);
  Status get_info(MPI_Info* info);
  // The endpoint by which this rank reaches some of the others; null if it needs none.
  const OpenEndpoint* fabric() const;
  int ranks() const { return state_.space->ranks(); }

  // The group of the window, the caller's to free.
  Status group(MPI_Group* group) const;
  // One of the five predefined attributes, as MPI_Win_get_attr gives it; nothing for other keys.
  std::optional<void*> predefined_attribute(int key);

  // From now on several threads may use windows at once: with guards, and without deferred locks. Precondition: no
  // thread is in a call on this window.
  void expect_threads();

  // Logs the fault in one line, calls the window's error handler, and returns the return code of the call.
  int raise(const MpiCall& call, const Error& error);
  // The same when the runtime has freed the handle: `handler` is called with another one.
  int raise_after_free(const MpiCall& call, const Error& error, MPI_Errhandler handler);

 private:
  void log_fault(const MpiCall& call, const Error& error);
  // Finds the memory that MPI_Win_shared_query means by `rank`, which may be MPI_PROC_NULL.
  Status find_mapped(int rank, Space::MappedData& found) const;
  Status end_epochs();
  Status flush_target(int rank, bool locally);
  Status flush_targets(bool locally);
  // Executes an operation whose local buffers are in the memory of a GPU; nothing if none is.
  std::optional<Status> stage(Operation& operation);
  Status execute(const Operation& operation);
  Status execute_strictly(const Operation& operation);

  WindowState state_;  // first: the fast path reads it
  MPI_Win handle_;
  Attributes attributes_;
  Hints hints_;
  const std::shared_ptr<std::atomic<std::uint32_t>> holds_ = std::make_shared<std::atomic<std::uint32_t>>(0);
};

// Creation of windows: gather what this rank brings, agree with the others, build, commit. A window is farside's on all
// ranks of the communicator, or the runtime's on all, or an error on all. What can fail on one rank is done before the
// agreement, or in it.
//
// Thread safety: any thread; concurrent calls need different communicators. Cost: 3 reductions of at most 32 bytes, and
// two exchanges inside the node; more at the first window of a communicator (pmpi/windows.md). Memory: that of the
// space.

struct CreationRequest {
  const char* call;  // MPI_Win_create, MPI_Win_allocate and so on
  int flavor;        // MPI_WIN_FLAVOR_*
  void* base;        // for MPI_Win_create, else null
  MPI_Aint size;     // bytes
  MPI_Aint displacement_unit;
  MPI_Info info;
  MPI_Comm communicator;
};

// Collective: makes the window, and sets `base` (its local memory) and `win`. If farside cannot carry the window, it
// logs the reason and leaves both; the caller calls the runtime's function. If one rank gets a Fault, all ranks do.
Status create_window(const CreationRequest& request, void** base, MPI_Win* win);

// Makes a handle of the runtime, which then keeps name, attributes and error handler. The call is local: the
// communicator has one rank. Which kinds of window Open MPI can make depends on the selected components.
Status make_handle(MPI_Win* handle);

}  // namespace farside::pmpi

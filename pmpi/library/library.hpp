// SPDX-License-Identifier: BSD-3-Clause
// The owner of all state of pmpi/ in this process. That of transport/ belongs to `this_process`, with Process
// (transport/base/state.hpp). tests/house/globals lists the other writable globals, with the reason for each.
//
//   loaded        library() and this_process are constant-initialized: any call may come first
//   first use     makes the MadeOnce members
//   first window  reads the settings, takes the runtime's resources (RuntimeResources::start), and opens endpoints
//   end           MPI_Finalize, or the end of the last session: writes the files of FARSIDE_STATS and FARSIDE_TRACE,
//                 closes the endpoints (Process::shut_down), and returns the runtime's resources
//   restart       the first window of a later session begins again with the runtime's resources and endpoints
//
// Nothing is destroyed: threads of the application may still be in farside when the process exits. Code that runs
// several processes as fibers of one exchanges the bytes of library(), this_process and this_thread when it switches.
// library() holds pointers to itself, so it works only at its address; that saves the fast path an indirection.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <vector>

#include <mpi.h>

#include "pmpi/library/handle_table.hpp"
#include "transport/base/state.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/trace.hpp"

namespace farside::pmpi {

class AllWindowStatistics;
class CallSites;
class Datatypes;
class FilesOnSignal;
class Requests;
class RuntimeResources;
class StrictWindows;
class Window;
struct WindowState;

// The map from handles to farside windows, which every call searches. Thread safety: look-ups from any thread without a
// lock; insert(), erase() and forget() from any thread, ordered by a mutex (handle_table.hpp).
class WindowTable {
 public:
  // For fast paths: returns null if the handle is not farside's, or a tool behind farside gets such calls first. Reads
  // one or two entries of the table.
  Window* find_fast(MPI_Win handle) const { return windows_.find(key_of_handle(handle)); }
  void insert(MPI_Win handle, std::unique_ptr<Window> window);
  // Destroys the window. The handle counts as freed, unless it belongs to a newer window.
  void erase(MPI_Win handle, Window* window);
  // The handle is the runtime's now.
  void forget(MPI_Win handle) { windows_.forget(key_of_handle(handle)); }
  struct Found {
    Window* window;        // null if the handle is not farside's
    const char* why_none;  // for the user: the handle is MPI_WIN_NULL or freed; null if it may be the runtime's
  };
  Found look_up(MPI_Win handle) const {
    if (handle == MPI_WIN_NULL) [[unlikely]]
      return {nullptr, kIsNull};
    const auto found = windows_.look_up(key_of_handle(handle));
    return {found.value, found.value == nullptr && found.taken_out ? kIsFreed : nullptr};
  }
  std::vector<Window*> all() {
    std::vector<Window*> windows;
    windows_.each([&](Window& window) { windows.push_back(&window); });
    return windows;
  }

 private:
  static constexpr const char* kIsNull = "the window is MPI_WIN_NULL; make one first (MPI 4.0 section 12.2)";
  static constexpr const char* kIsFreed =
      "the window has been freed; do not keep copies of its handle (MPI 4.0 section 12.2.5)";

  HandleTable<Window> windows_;
};

// For the files of FARSIDE_STATS and FARSIDE_TRACE.
struct Observed {
  std::atomic<unsigned long> farside_windows{0}, runtime_windows{0};
  std::atomic<bool> clocks_compared{false};            // compare_clocks() was called
  std::mutex mutex;                                    // guards the following
  Job job;                                             // without the time of writing
  std::optional<ClockPair> begun;                      // when the first window was made
  std::vector<TraceRecord> clocks;                     // TraceKind::kClock
  std::vector<std::pair<Ticks, std::string>> reports;  // when, and the line
};

struct Library {
  WindowTable windows;
  WindowState* deferring = nullptr;            // the window whose lock table has the deferred lock
  std::atomic<bool> any_requests{false};       // Requests::any()
  std::atomic<unsigned> broken_rules{0};       // that were reported (WindowState::warn)
  std::atomic<std::uint64_t> groups_freed{0};  // calls of MPI_Group_free, each counted before the runtime's function
  std::atomic<Ticks> runtime_moved{0}, runtime_pause{0};  // WindowState::progress_runtime_now()
  MPI_Request progressed_by{};                            // RuntimeResources: a request that never completes
  // Each uses only those before it.
  MadeOnce<RuntimeResources> resources;
  MadeOnce<Datatypes> datatypes;
  MadeOnce<Observed> observed;
  MadeOnce<CallSites> sites;
  MadeOnce<AllWindowStatistics> statistics;
  MadeOnce<FilesOnSignal> files_on_signal;
  MadeOnce<StrictWindows> strict_windows;
  MadeOnce<Requests> requests;
};
static_assert(std::is_trivially_destructible_v<Library>);

inline constinit Library library_of_process;
inline Library& library() { return library_of_process; }

}  // namespace farside::pmpi

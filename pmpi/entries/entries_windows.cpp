// SPDX-License-Identifier: BSD-3-Clause
// Entry points: creation, freeing and queries of windows (MPI 4.0 section 12.2), and the end of MPI.
#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "pmpi/entries/entry.hpp"
#include "pmpi/observe/observation.hpp"
#include "pmpi/runtime/program_runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "pmpi/window/requests.hpp"
#include "transport/base/log.hpp"
#include "transport/base/result.hpp"
#include "transport/base/threads.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

// The runtime may give its own window the handle of a farside window that another thread is freeing.
int by_runtime(MPI_Win* win, int code) {
  if (code == MPI_SUCCESS) library().windows.forget(*win);
  return code;
}

template <class Original>
int create(const CreationRequest& request, void** base, MPI_Win* win, Original&& original) {
  MPI_Win made = MPI_WIN_NULL;
  const Status status = without_bad_alloc([&] { return create_window(request, base, &made); });
  if (!status) return raise_on(request.communicator, request.call, status.error());
  if (made == MPI_WIN_NULL) return by_runtime(win, original());
  *win = made;
  return MPI_SUCCESS;
}

// One line per process that has an epoch open, or of the first process: the windows that the program has not freed.
void warn_of_windows(const char* call) {
  const std::vector<Window*> windows = library().windows.all();
  if (windows.empty() || !farside::Log::enabled(farside::LogLevel::kWarn)) return;
  const auto has_epoch = [](Window* each) {
    const auto held = each->state().guard();
    const epochs::EpochState& epoch = each->state().epoch;
    return epoch.access() > epochs::Access::kFenceOpen || epoch.exposure().state >= epochs::Exposure::kPosting;
  };
  const auto open = std::ranges::find_if(windows, has_epoch);
  if (open == windows.end() && library().resources->process_rank() != 0) return;
  WindowState& one = (open != windows.end() ? *open : windows.front())->state();
  const auto held = one.guard();
  farside::log(farside::LogLevel::kWarn,
               "{} with {} that MPI_Win_free has not freed, such as '{}': {} (MPI 4.0 section 12.2.5)", call,
               windows.size() == 1 ? "a window" : fmt::format("{} windows", windows.size()), one.describe_name(),
               one.describe_epochs());
}

void end_with_runtime(const char* call) {
  (void)without_bad_alloc([&] { warn_of_windows(call); });
  end_observation();
  // Windows that were not freed keep the endpoint until the process exits.
  (void)without_bad_alloc([] {
    if (library().windows.all().empty()) Process::instance().shut_down();
  });
}

// MPI_Win_allocate and others declare the address of their base pointer as void*.
void** address_of(void* base) { return static_cast<void**>(base); }

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

// The calls with a displacement unit, of int, or of MPI_Aint in the forms with the suffix _c.
#define FARSIDE_UNIT_CALLS(suffix, Unit)                                                                       \
  FARSIDE_ENTRY(Win_create##suffix,                                                                            \
                (void* base, MPI_Aint size, Unit unit, MPI_Info info, MPI_Comm comm, MPI_Win* win),            \
                (base, size, unit, info, comm, win)) {                                                         \
    void* same = nullptr;                                                                                      \
    return create({"MPI_Win_create" #suffix, MPI_WIN_FLAVOR_CREATE, base, size, unit, info, comm}, &same, win, \
                  [&] { return runtime().Win_create##suffix(base, size, unit, info, comm, win); });            \
  }                                                                                                            \
  FARSIDE_ENTRY(Win_allocate##suffix,                                                                          \
                (MPI_Aint size, Unit unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* win),            \
                (size, unit, info, comm, base, win)) {                                                         \
    return create({"MPI_Win_allocate" #suffix, MPI_WIN_FLAVOR_ALLOCATE, nullptr, size, unit, info, comm},      \
                  address_of(base), win,                                                                       \
                  [&] { return runtime().Win_allocate##suffix(size, unit, info, comm, base, win); });          \
  }                                                                                                            \
  FARSIDE_ENTRY(Win_allocate_shared##suffix,                                                                   \
                (MPI_Aint size, Unit unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* win),            \
                (size, unit, info, comm, base, win)) {                                                         \
    return create({"MPI_Win_allocate_shared" #suffix, MPI_WIN_FLAVOR_SHARED, nullptr, size, unit, info, comm}, \
                  address_of(base), win,                                                                       \
                  [&] { return runtime().Win_allocate_shared##suffix(size, unit, info, comm, base, win); });   \
  }                                                                                                            \
  FARSIDE_ENTRY(Win_shared_query##suffix, (MPI_Win win, int rank, MPI_Aint* size, Unit* unit, void* base),     \
                (win, rank, size, unit, base)) {                                                               \
    return on_window(                                                                                          \
        win, {"MPI_Win_shared_query" #suffix, rank},                                                           \
        [&](Window& w) { return w.shared_query(rank, size, unit, address_of(base)); },                         \
        &Runtime::Win_shared_query##suffix, win, rank, size, unit, base);                                      \
  }

FARSIDE_UNIT_CALLS(, int)
#if MPI_VERSION >= 4
FARSIDE_UNIT_CALLS(_c, MPI_Aint)
#endif

FARSIDE_ENTRY(Win_create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win* win), (info, comm, win)) {
  void* bottom = nullptr;
  return create({"MPI_Win_create_dynamic", MPI_WIN_FLAVOR_DYNAMIC, MPI_BOTTOM, 0, 1, info, comm}, &bottom, win,
                [&] { return runtime().Win_create_dynamic(info, comm, win); });
}

FARSIDE_ENTRY(Win_attach, (MPI_Win win, void* base, MPI_Aint size), (win, base, size)) {
  return on_window(
      win, "MPI_Win_attach", [&](Window& w) { return w.attach(base, size); }, &Runtime::Win_attach, win, base, size);
}

FARSIDE_ENTRY(Win_detach, (MPI_Win win, const void* base), (win, base)) {
  return on_window(
      win, "MPI_Win_detach", [&](Window& w) { return w.detach(base); }, &Runtime::Win_detach, win, base);
}

FARSIDE_ENTRY(Win_free, (MPI_Win * win), (win)) {
  const auto [found, why_none] = library().windows.look_up(*win);
  const auto window = found;  // lambdas of clang before 16 capture no structured binding
  if (window == nullptr) {
    if (why_none != nullptr) return raise_without_window("MPI_Win_free", why_none);
    return runtime().Win_free(win);
  }
  if (const int code = in_call(*window, "MPI_Win_free", [](Window& w) { return w.check_free(); }); code != MPI_SUCCESS)
    return code;
  // Delete callbacks of attributes run inside the runtime's call and may still query the window. If one of them fails,
  // MPICH keeps the handle. The window is then unchanged, so the other ranks must not have freed theirs before.
  const MPI_Win handle = *win;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  (void)runtime().Win_get_errhandler(handle, &handler);
  const int code = runtime().Win_free(win);
  const bool freed = code == MPI_SUCCESS || *win != handle;
  int lost = MPI_SUCCESS;
  if (freed) {
    const MpiCall call("MPI_Win_free");
    const farside::Status ended = farside::without_bad_alloc([&] {
      const CallReason reason(window->state(), call);
      return window->end();
    });
    // Until there is memory for it: requests of this window must not outlive it.
    const auto abandon = [&] {
      if (Requests::any()) library().requests->abandon(*window);
    };
    while (!farside::without_bad_alloc(abandon)) std::this_thread::yield();
    // Operations that failed at the end are reported, but the window is freed: the other ranks free it, too.
    if (!ended) lost = window->raise_after_free(call, ended.error(), handler);
    library().windows.erase(handle, window);
  }
  if (handler != MPI_ERRHANDLER_NULL) (void)runtime().Errhandler_free(&handler);  // a failure only loses memory
  return lost != MPI_SUCCESS ? lost : code;
}

FARSIDE_ENTRY(Win_get_attr, (MPI_Win win, int key, void* value, int* flag), (win, key, value, flag)) {
  const auto [window, why_none] = library().windows.look_up(win);
  if (why_none != nullptr) return raise_without_window("MPI_Win_get_attr", why_none);
  const std::optional<void*> attribute = window != nullptr ? window->predefined_attribute(key) : std::nullopt;
  if (!attribute) return runtime().Win_get_attr(win, key, value, flag);
  *address_of(value) = *attribute;
  *flag = 1;
  return MPI_SUCCESS;
}

FARSIDE_ENTRY(Win_get_group, (MPI_Win win, MPI_Group* group), (win, group)) {
  return on_window(
      win, "MPI_Win_get_group", [&](Window& w) { return w.group(group); }, &Runtime::Win_get_group, win, group);
}

FARSIDE_ENTRY(Win_set_info, (MPI_Win win, MPI_Info info), (win, info)) {
  return on_window(
      win, "MPI_Win_set_info", [&](Window& w) { return w.set_info(info); }, &Runtime::Win_set_info, win, info);
}

FARSIDE_ENTRY(Win_get_info, (MPI_Win win, MPI_Info* info), (win, info)) {
  return on_window(
      win, "MPI_Win_get_info", [&](Window& w) { return w.get_info(info); }, &Runtime::Win_get_info, win, info);
}

// The runtime keeps the name; statistics and traces have it, too.
FARSIDE_ENTRY(Win_set_name, (MPI_Win win, const char* name), (win, name)) {
  Window* const window = library().windows.look_up(win).window;
  if (window == nullptr) return runtime().Win_set_name(win, name);
  const farside::Status named = farside::without_bad_alloc([&] { window->named(name); });
  return named ? runtime().Win_set_name(win, name) : window->raise("MPI_Win_set_name", named.error());
}

// Interposed because windows cache groups (KnownGroup).
FARSIDE_ENTRY(Group_free, (MPI_Group * group), (group)) {
  library().groups_freed.fetch_add(1, std::memory_order_relaxed);
  return runtime().Group_free(group);
}

FARSIDE_ENTRY(Finalize, (void), ()) {
  end_with_runtime("MPI_Finalize");
  library().resources->world_ends();
  return runtime().Finalize();
}

#if FARSIDE_HAS_SESSIONS
FARSIDE_ENTRY(Session_init, (MPI_Info info, MPI_Errhandler handler, MPI_Session* session), (info, handler, session)) {
  refuse_other_runtime();
  if (find_tools()) return farside_Session_init(info, handler, session);
  return without_window("MPI_Session_init", [&] {
    const int code = runtime().Session_init(info, handler, session);
    const farside::PatientAllocation has_begun;
    if (code == MPI_SUCCESS && library().resources->session_begins(*session)) {
      for (Window* window : library().windows.all()) window->expect_threads();
    }
    return code;
  });
}

// A program that has only sessions does not call MPI_Finalize.
FARSIDE_ENTRY(Session_finalize, (MPI_Session * session), (session)) {
  if (session != nullptr) {
    const int code = without_window("MPI_Session_finalize", [&] {
      if (library().resources->begin_end(*session)) end_with_runtime("MPI_Session_finalize");
      library().resources->session_ends(*session);
      return static_cast<int>(MPI_SUCCESS);
    });
    if (code != MPI_SUCCESS) return code;
  }
  return runtime().Session_finalize(session);
}
#endif

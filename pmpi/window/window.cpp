// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/window.hpp"

#include <algorithm>
#include <utility>

#include "pmpi/call_sites.hpp"
#include "pmpi/check/strict.hpp"
#include "pmpi/library/library.hpp"
#include "pmpi/observe/observation.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/log.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/process.hpp"
#include "transport/routes/fabric/fabric_route.hpp"
#include "transport/space/regions.hpp"

namespace farside::pmpi {
namespace {

TraceFlavor flavor_of(int flavor) {
  switch (flavor) {
    case MPI_WIN_FLAVOR_CREATE: return TraceFlavor::kCreate;
    case MPI_WIN_FLAVOR_ALLOCATE: return TraceFlavor::kAllocate;
    case MPI_WIN_FLAVOR_SHARED: return TraceFlavor::kShared;
    default: return TraceFlavor::kDynamic;
  }
}

constexpr const char* kWorldHandler =
    "; MPI_ERRORS_RETURN of MPI_COMM_WORLD does not apply to windows (but in MPICH alone): call MPI_Win_set_errhandler";

// Whether an error ends the program, because only MPI_COMM_WORLD has MPI_ERRORS_RETURN. MPICH returns errors of windows
// then.
bool relies_on_world_handler(MPI_Win window) {
  int initialized = 0;
  if (is_open_mpi() || runtime().Initialized(&initialized) != MPI_SUCCESS || initialized == 0) return false;
  MPI_Errhandler own = MPI_ERRHANDLER_NULL, world = MPI_ERRHANDLER_NULL;
  (void)runtime().Win_get_errhandler(window, &own);
  (void)runtime().Comm_get_errhandler(MPI_COMM_WORLD, &world);
  const bool relies = own == MPI_ERRORS_ARE_FATAL && world == MPI_ERRORS_RETURN;
  for (MPI_Errhandler* each : {&own, &world}) {
    if (*each != MPI_ERRHANDLER_NULL) (void)runtime().Errhandler_free(each);
  }
  return relies;
}

Status not_dynamic() {
  return Fault{MPI_ERR_RMA_FLAVOR, "the window was not made by MPI_Win_create_dynamic (MPI 4.0 section 12.2.4)"};
}

}  // namespace

WindowState::WindowState(MPI_Group of, std::unique_ptr<Space> memory,
                         std::shared_ptr<const epochs::BarrierSchedule> schedule, int global_lock_home, bool threaded,
                         Check check)
    : space(std::move(memory)),
      control(*space),
      fast(check == Check::kStrict   ? Fast::kNone
           : space->may_queue_puts() ? Fast::kLocks
                                     : Fast::kReleases),
      trusts_locks(!threaded && (check == Check::kOn || check == Check::kStrict)),
      fast_targets(check != Check::kStrict ? space->words().node().consecutive() : std::span<const NodeTarget>()),
      epoch(space->ranks()),
      locks(space->rank(), space->ranks(), global_lock_home),
      lost_locks(*this),
      marks_exposure(check != Check::kOff),
      barrier_schedule(std::move(schedule)),
      interruptions_at_barrier(control.first_interruptions()),
      group(of) {
  locks.locks() =
      WindowLocks::Locks(HeldLocksMemory<epochs::HeldLock>(space->words().own(epochs::ControlBlock::kHeld)));
  locks.locks().reserve(epochs::ControlBlock::kHeldLocks);
  locks.mutex().threaded = threaded;
  if (check == Check::kOff) epoch.report_only();
  if (check == Check::kWarn) {
    report_broken = [this](const epochs::Violation& broken, int /*target*/) { warn(fault_of(broken)); };
    epoch.report_only(report_broken);
  }
}

WindowState::~WindowState() {
  if (library().deferring == this) library().deferring = nullptr;
  statistics.reset();  // asks the group once more
  strict.reset();      // likewise
  runtime().Group_free(&group);
}

void WindowState::close_stripes() {
  const bool taken = lock_stripes->close([this](const epochs::HeldLock& lock) {
    (void)epoch.lock(lock.target, lock.type);
    locks.locks().push_back(lock);
  });
  if (taken) epoch.locked_meanwhile();
}

// Once per place in the program, at most kMost times per process. The call in which this thread is
// (LongWait::innermost) breaks the rule. Cost: a walk up the stack for each call that breaks a rule, some microseconds,
// until kMost reports were made; 200 bytes per report.
void WindowState::warn(const Error& broken) const {
  constexpr unsigned kMost = 100;
  const LongWait::Reason* const call = LongWait::innermost();
  if (call == nullptr || library().broken_rules >= kMost) return;
  const std::uint16_t site = library().sites->find_here();
  if (!Log::is_new(fmt::format("site {}: {}", site, broken.text))) return;
  const std::string target = call->target() >= 0 ? fmt::format(", target {}", call->target()) : "";
  report(LogLevel::kWarn, fmt::format("{} on window '{}'{}: {}; executed anyway; called from {}", call->call(),
                                      describe_name(), target, broken.text, library().sites->text(site)));
  if (++library().broken_rules == kMost)
    log(LogLevel::kWarn, "this is the {}th broken rule; further ones are not reported", kMost);
}

Status WindowState::check_assert(int assert, int allowed_bits, const char* allowed) {
  if ((assert & ~allowed_bits) == 0) return {};
  Fault fault{MPI_ERR_ASSERT,
              fmt::format("assertion {:#x} is not one of this call; allowed: {} (MPI 4.0 section 12.5.5){}", assert,
                          allowed, report_broken ? "" : kCarriedWithWarn)};
  if (!report_broken) return fault;
  const auto held = guard();
  warn(fault);
  return {};
}

Status WindowState::check_rank(int rank) const {
  if (has_rank(rank)) return {};
  return Fault{MPI_ERR_RANK, fmt::format("rank {} is not in the window's group of {}; use 0 to {} or MPI_PROC_NULL "
                                         "(MPI 4.0 section 12.3)",
                                         rank, space->ranks(), space->ranks() - 1)};
}

// The runtime's progress engine takes more time with more ranks, and so does the pause after a call of it.
void WindowState::progress_runtime_now() {
  std::atomic<Ticks>&last = library().runtime_moved, &pause = library().runtime_pause;
  const Ticks begun = ticks();
  if (begun - last.load(std::memory_order_relaxed) < pause.load(std::memory_order_relaxed)) return;
  Process::instance().poll_runtime();
  const Ticks end = ticks();
  last.store(end, std::memory_order_relaxed);
  pause.store(
      std::clamp(Timing::kRuntimePause * (end - begun), Timing::kShortestRuntimePause, Timing::kLongestRuntimePause),
      std::memory_order_relaxed);
}

Window::Window(MPI_Win handle, MPI_Group group, const Attributes& attributes, std::unique_ptr<Space> space,
               std::shared_ptr<const epochs::BarrierSchedule> barriers, int global_lock_home, Hints hints,
               bool threaded, Check check, std::unique_ptr<Space> logs, std::uint64_t id)
    : state_(group, std::move(space), std::move(barriers), global_lock_home, threaded, check),
      handle_(handle),
      attributes_(attributes),
      hints_(std::move(hints)) {
  state_.statistics = WindowStatistics::open(*state_.space, group, flavor_of(attributes.flavor), id, threaded);
  if (state_.statistics != nullptr) state_.fast = Fast::kNone;
  if (check == Check::kStrict) state_.strict = std::make_unique<Strict>(*state_.space, std::move(logs), group);
  if (threaded) passive().use_stripes();
}

void Window::expect_threads() {
  // The lock is acquired now. Later a thread on another window would acquire it, concurrently with the thread whose
  // lock it is.
  if (library().deferring == &state_) {
    if (Status taken = passive().acquire_deferred_lock(); !taken) raise("MPI_Win_lock", taken.error());
  }
  state_.locks.mutex().threaded = true;
  state_.trusts_locks = false;
  passive().use_stripes();
  state_.space->expect_threads();
}

Status Window::group(MPI_Group* group) const {
  // Excluding no rank makes a new handle for the same members.
  const int code = runtime().Group_excl(state_.group, 0, nullptr, group);
  return code == MPI_SUCCESS ? Status() : Status(Fault{code, "the group of the window could not be copied"});
}

std::optional<void*> Window::predefined_attribute(int key) {
  switch (key) {
    case MPI_WIN_BASE: return attributes_.base;
    case MPI_WIN_SIZE: return &attributes_.size;
    case MPI_WIN_DISP_UNIT: return &attributes_.displacement_unit;
    case MPI_WIN_CREATE_FLAVOR: return &attributes_.flavor;
    case MPI_WIN_MODEL: return &attributes_.model;
    default: return std::nullopt;
  }
}

void Window::named(const char* name) {
  {
    const auto held = state_.guard();
    state_.name = *name != '\0' ? std::make_unique<std::string>(name) : nullptr;
  }
  if (state_.statistics != nullptr) state_.statistics->named(name);
}

int Window::raise(const MpiCall& call, const Error& error) {
  log_error(call.name, error, [&] { log_fault(call, error); });
  runtime().Win_call_errhandler(handle_, class_of(error));
  return class_of(error);
}

void Window::log_fault(const MpiCall& call, const Error& error) {
  std::string state, name;
  const int of = class_of(error);
  const bool of_epochs = of == MPI_ERR_RMA_SYNC || of == MPI_ERR_RMA_CONFLICT || of == MPI_ERR_ASSERT;
  {
    const auto held = state_.guard();
    name = state_.describe_name();
    if (of_epochs) state = "; " + state_.describe_epochs();
  }
  std::string where;
  if (call.target == MPI_PROC_NULL) {
    where = ", target MPI_PROC_NULL";
  } else if (const bool named = call.target != MpiCall::kNoTarget; named || error.rank != Error::kNoRank) {
    const int target = named ? call.target : error.rank;
    where = fmt::format(", target {}", target);
    // A lock also depends on other ranks than its target: the home of the global lock, a rank to be woken.
    if (error.rank != Error::kNoRank && error.rank != target) where += fmt::format(", at rank {}", error.rank);
  }
  report(LogLevel::kError,
         fmt::format("{} on window '{}'{}: {}{}{}{}", call.name, name, where, error.text, state,
                     library().sites->called_from(), relies_on_world_handler(handle_) ? kWorldHandler : ""));
}

int Window::raise_after_free(const MpiCall& call, const Error& error, MPI_Errhandler handler) {
  MPI_Win stand_in = MPI_WIN_NULL;
  if (make_handle(&stand_in) && handler != MPI_ERRHANDLER_NULL) (void)runtime().Win_set_errhandler(stand_in, handler);
  handle_ = stand_in;
  const int code = raise(call, error);
  if (stand_in != MPI_WIN_NULL) (void)runtime().Win_free(&stand_in);  // a failure only loses memory
  return code;
}

// Ends the epochs that FARSIDE_CHECK=warn lets MPI_Win_free find open, because other ranks may wait for that.
Status Window::end_epochs() {
  Status first;
  if (state_.epoch.started()) first = active().complete();
  while (!state_.locks.locks().empty()) {
    epochs::HeldLock lock;
    first.keep(passive().unlock(state_.locks.locks().back().target, lock));
  }
  while (state_.epoch.access() == epochs::Access::kLockedAll) first.keep(passive().unlock_all());
  return first;
}

Status Window::end() {
  Status first = end_epochs();
  first.keep(state_.space->flush_all());
  wait_until(state_.space->words().wake_event(), [&] { return state_.control.posts_done(); });
  first.keep(state_.control.take_unawaited_error());
  first.keep(active().barrier(epochs::BarrierWord::kFree));
  return first;
}

Status Window::attach(const void* base, MPI_Aint size) {
  if (state_.space->regions() == nullptr) return not_dynamic();
  if (size < 0) return Fault{MPI_ERR_SIZE, fmt::format("size is {}; it may not be negative", size)};
  if (size > 0 && Process::instance().device_memory().holds(base)) {
    return Fault{MPI_ERR_RMA_ATTACH,
                 "it is GPU memory, which farside cannot access; a window that MPI_Win_create makes on it is the "
                 "runtime's"};
  }
  return state_.space->regions()->attach(base, static_cast<std::uint64_t>(size));
}

Status Window::detach(const void* base) {
  if (state_.space->regions() == nullptr) return not_dynamic();
  return state_.space->regions()->detach(base);
}

Status Window::find_mapped(int rank, Space::MappedData& found) const {
  if (attributes_.flavor == MPI_WIN_FLAVOR_DYNAMIC) {
    return Fault{MPI_ERR_RMA_FLAVOR,
                 "the window was made by MPI_Win_create_dynamic, and may have several regions of memory in each rank; "
                 "query a window of another flavor (MPI 4.1 section 12.2.3)"};
  }
  if (rank == MPI_PROC_NULL) {
    // The lowest rank of the window that has any memory, wherever it is.
    rank = state_.space->lowest_rank_with_data();
    if (rank < 0) return {};
  } else if (Status o = state_.check_rank(rank); !o) {
    return o;
  }
  found = state_.space->mapped_data(rank);
  return {};
}

Status Window::set_info(MPI_Info info) {
  if (info == MPI_INFO_NULL) {
    return Fault{MPI_ERR_INFO, "the info object is MPI_INFO_NULL, which has no hints (MPI 4.0 section 12.2.7)"};
  }
  if (Status o = check_info(info); !o) return o;
  const auto held = state_.guard();
  hints_.take(info);
  return {};
}

const OpenEndpoint* Window::fabric() const {
  const FabricRoute* const route = state_.space->fabric_route();
  if (route == nullptr || !state_.space->uses(RouteKind::kFabric)) return nullptr;
  return dynamic_cast<const OpenEndpoint*>(&route->endpoint());
}

Status Window::get_info(MPI_Info* info) {
  {
    const auto held = state_.guard();
    if (Status o = hints_.report(info); !o) return o;
  }
  const auto set = [&](const char* key, const char* value) {
    return runtime().Info_set(*info, key, value) == MPI_SUCCESS;
  };
  bool by_thread = false;
  for (std::size_t kind = 0; kind < kRouteKinds; ++kind)
    by_thread = by_thread || (kRoutes[kind].by_thread && state_.space->uses(static_cast<RouteKind>(kind)));
  bool taken = set("farside_route", names_of_routes(*state_.space, ",").c_str()) &&
               set("farside_progress", by_thread ? "thread" : "origin");
  if (const OpenEndpoint* const endpoint = fabric(); endpoint != nullptr) {
    taken = set("farside_provider", endpoint->provider()) && set("farside_device", endpoint->device()) && taken;
  }
  if (state_.locks.has_global_lock())
    taken = set("farside_global_lock_home", std::to_string(state_.locks.home()).c_str()) && taken;
  return taken ? Status() : Status(Fault{MPI_ERR_NO_MEM, "the runtime took no more info"});
}

namespace {

// Whether a tool behind farside has a call with a fast path.
bool tool_has_fast_call() {
  const auto any = [](auto... functions) { return ((functions != nullptr) || ...); };
  const Runtime& tools = tools_behind;
  return any(tools.Put, tools.Get, tools.Accumulate, tools.Get_accumulate, tools.Fetch_and_op, tools.Compare_and_swap,
             tools.Win_fence, tools.Win_post, tools.Win_start, tools.Win_complete, tools.Win_wait, tools.Win_lock,
             tools.Win_unlock, tools.Win_flush, tools.Win_flush_local);
}

}  // namespace

void WindowTable::insert(MPI_Win handle, std::unique_ptr<Window> window) {
  if (tool_has_fast_call()) windows_.hide();
  windows_.insert(key_of_handle(handle), window.get());
  window.release();
}

void WindowTable::erase(MPI_Win handle, Window* window) {
  const std::unique_ptr<Window> destroyed(window);
  windows_.take_out(key_of_handle(handle), window);
}

}  // namespace farside::pmpi

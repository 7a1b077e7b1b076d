// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/window.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "pmpi/check/broken_rules.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "pmpi/window/creation.hpp"
#include "transport/base/log.hpp"
#include "transport/base/ticks.hpp"

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

}  // namespace

Window::Window(MPI_Win handle, MPI_Group group, const Attributes& attributes, std::unique_ptr<Space> space,
               std::shared_ptr<const epochs::BarrierSchedule> barriers, int global_lock_home, Hints hints,
               bool threaded, Check check, std::unique_ptr<Space> logs, std::uint64_t id)
    : handle_(handle),
      group_(group),
      attributes_(attributes),
      space_(std::move(space)),
      control_(*space_),
      hints_(std::move(hints)),
      fast_path_(check != Check::kStrict),
      fast_locks_(fast_path_),
      fast_releases_(fast_path_ && !space_->may_keep_puts()),
      fast_notifications_(fast_path_ && space_->all_immediate()),
      trusts_locks_(!threaded && (check == Check::kOn || check == Check::kStrict)),
      fast_targets_(fast_path_ ? space_->consecutive_targets() : std::span<const NodeTarget>()),
      epoch_(space_->ranks()),
      locks_(space_->rank(), space_->ranks(), global_lock_home),
      dead_ranks_(*space_, control_),
      marks_exposure_(check != Check::kOff),
      barrier_schedule_(std::move(barriers)) {
  locks_.locks() =
      WindowLocks::Locks(HeldLocksMemory<epochs::HeldLock>(space_->own_control_word(epochs::ControlBlock::kHeld)));
  locks_.locks().reserve(epochs::ControlBlock::kHeldLocks);
  locks_.mutex().threaded = threaded;
  if (check == Check::kOff) epoch_.disable_checks();
  if (check == Check::kWarn) {
    report_broken_ = [this](const epochs::Violation& broken, int /*target*/) { warn(fault_of(broken)); };
    epoch_.warn_with(report_broken_);
  }
  statistics_ =
      WindowStatistics::open(*space_,
                             {flavor_of(attributes.flavor), id,
                              [this](int rank) { return RuntimeResources::instance().process_rank_of(group_, rank); }},
                             threaded);
  if (statistics_ != nullptr) fast_locks_ = fast_releases_ = fast_notifications_ = false;
  if (check == Check::kStrict) strict_ = std::make_unique<Strict>(*space_, std::move(logs));
  if (threaded) use_stripes();
}

Window::~Window() {
  if (deferring_ == this) deferring_ = nullptr;
  statistics_.reset();  // its end asks for ranks of the group
  runtime().Group_free(&group_);
}

void Window::expect_threads() {
  // The lock is acquired now. Later a thread on another window would acquire it, concurrently with the thread whose
  // lock it is.
  if (deferring_ == this) {
    if (Outcome taken = acquire_deferred_lock(); !taken) raise("MPI_Win_lock", taken.fault());
  }
  locks_.mutex().threaded = true;
  trusts_locks_ = false;
  use_stripes();
  space_->expect_threads();
  if (statistics_ != nullptr) statistics_->expect_threads();
}

Outcome Window::group(MPI_Group* group) const {
  // Excluding no rank makes a new handle for the same members.
  const int code = runtime().Group_excl(group_, 0, nullptr, group);
  return code == MPI_SUCCESS ? Outcome() : Outcome(Fault{code, "the group of the window could not be copied"});
}

void* Window::predefined_attribute(int key) {
  switch (key) {
    case MPI_WIN_BASE: return attributes_.base;
    case MPI_WIN_SIZE: return &attributes_.size;
    case MPI_WIN_DISP_UNIT: return &attributes_.displacement_unit;
    case MPI_WIN_CREATE_FLAVOR: return &attributes_.flavor;
    case MPI_WIN_MODEL: return &attributes_.model;
    default: return nullptr;
  }
}

void Window::named(const char* name) {
  {
    const auto held = guard();
    name_ = *name != '\0' ? std::make_unique<std::string>(name) : nullptr;
  }
  if (statistics_ != nullptr) statistics_->named(name);
}

int Window::raise(const CallSite& call, const Fault& fault) {
  log_error(call.name, fault, [&] { log_fault(call, fault); });
  runtime().Win_call_errhandler(handle_, fault.error_class);
  return fault.error_class;
}

void Window::log_fault(const CallSite& call, const Fault& fault) {
  std::string state, name;
  const bool of_epochs = fault.error_class == MPI_ERR_RMA_SYNC || fault.error_class == MPI_ERR_RMA_CONFLICT ||
                         fault.error_class == MPI_ERR_ASSERT;
  {
    const auto held = guard();
    name = this->name();
    if (of_epochs) state = "; here " + epoch_.describe_access();
    if (of_epochs && epoch_.exposure() >= epochs::Exposure::kPosting) state += "; " + epoch_.describe_exposure();
  }
  std::string where;
  if (call.target == MPI_PROC_NULL) {
    where = ", target MPI_PROC_NULL";
  } else if (const int target = call.target != CallSite::kNoTarget ? call.target : fault.target;
             target != Fault::kNoTarget) {
    where = fmt::format(", target {}", target);
    // A lock also depends on other ranks than its target: the home of the global lock, a rank to be woken.
    if (fault.target != Fault::kNoTarget && fault.target != target) where += fmt::format(", at rank {}", fault.target);
  }
  log(LogLevel::kError, "{} on window '{}'{}: {}{}{}", call.name, name, where, fault.text, state,
      relies_on_world_handler(handle_) ? kWorldHandler : "");
}

int Window::raise_after_free(const CallSite& call, const Fault& fault, MPI_Errhandler handler) {
  MPI_Win stand_in = MPI_WIN_NULL;
  if (make_handle(&stand_in) && handler != MPI_ERRHANDLER_NULL) (void)runtime().Win_set_errhandler(stand_in, handler);
  handle_ = stand_in;
  const int code = raise(call, fault);
  if (stand_in != MPI_WIN_NULL) (void)runtime().Win_free(&stand_in);  // a failure only loses memory
  return code;
}

std::string Window::name() const { return name_ != nullptr ? *name_ : "(unnamed)"; }

void Window::warn(const Fault& fault) { BrokenRules::instance().note(name(), fault.text); }

Outcome Window::check_assert(int assert, int allowed_bits, const char* allowed) {
  if ((assert & ~allowed_bits) == 0) return {};
  Fault fault{MPI_ERR_ASSERT,
              fmt::format("assertion {:#x} is not one of this call; allowed: {} (MPI 4.0 section 12.5.5){}", assert,
                          allowed, report_broken_ ? "" : kCarriedWithWarn)};
  if (!report_broken_) return fault;
  const auto held = guard();
  warn(fault);
  return {};
}

Outcome Window::check_rank(int rank) const {
  if (rank >= 0 && rank < space_->ranks()) return {};
  return Fault{MPI_ERR_RANK, fmt::format("rank {} is not in the window's group of {}; use 0 to {} or MPI_PROC_NULL "
                                         "(MPI 4.0 section 12.3)",
                                         rank, space_->ranks(), space_->ranks() - 1)};
}

// The runtime's progress engine takes from 50 ns to many microseconds, more with more ranks. The pause after a call of
// the engine is sixteen times the duration of the call, but at least 20,000 ticks (5 to 20 us) and at most 2,000,000.
void Window::progress_runtime_now() {
  constexpr Ticks kShortest = 20'000, kLongest = 2'000'000;
  static std::atomic<Ticks> last{0}, pause{0};
  const Ticks begun = ticks();
  if (begun - last.load(std::memory_order_relaxed) < pause.load(std::memory_order_relaxed)) return;
  Process::instance().poll_runtime();
  const Ticks end = ticks();
  last.store(end, std::memory_order_relaxed);
  pause.store(std::clamp(16 * (end - begun), kShortest, kLongest), std::memory_order_relaxed);
}

}  // namespace farside::pmpi

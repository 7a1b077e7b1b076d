// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/strict_calls.hpp"

#include <optional>
#include <tuple>
#include <utility>

#include "epochs/protocols/exposure.hpp"
#include "pmpi/window/active_target.hpp"
#include "pmpi/window/passive_target.hpp"

namespace farside::pmpi {
namespace {

using epochs::Access, epochs::EpochState, epochs::Exposure;

// MPI 4.0 section 12.5.3: a window may not be locked and exposed at once.
constexpr epochs::Violation kOperationWhilePosted{
    epochs::ErrorClass::kRmaConflict,
    "operation under a lock_all on a target whose window is exposed by its MPI_Win_post",
    "access it before that post or after the target's MPI_Win_wait", "MPI 4.0 section 12.5.3 (3.1: 11.5.3)", true};

// Executes a call whatever the check finds.
template <class Check, class Call>
Outcome checked(Check&& check, Call&& call) {
  Outcome found = without_bad_alloc(check);
  return first_of(call(), std::move(found));
}

}  // namespace

EpochState StrictCalls::epoch() {
  const auto held = window_.guard();
  return window_.epoch;
}

bool StrictCalls::holds_alone(int rank) {
  const auto held = window_.guard();
  return window_.locks.type_of(rank) == epochs::LockType::kExclusive;
}

Exposure StrictCalls::exposure() {
  const auto held = window_.guard();
  return window_.epoch.exposure().state;
}

Outcome StrictCalls::execute(const CheckedOperation& operation) {
  using Call = Strict::Call;
  static_assert(static_cast<int>(Call::kGetAccumulate) == static_cast<int>(Counted::kFetch) &&
                static_cast<int>(Call::kCompareAndSwap) == static_cast<int>(Counted::kCompareAndSwap));
  const auto& [origin, result, target] = std::tie(operation.origin, operation.result, operation.target);
  const Strict::Side here{origin.address, origin.count, operation.origin_type};
  std::optional<Strict::Side> fetched;
  if (operation.call == Counted::kGet) fetched = here;
  if (result != nullptr) fetched = {result->address, result->count, operation.result_type};
  epochs::Use use = operation.reads_origin ? epochs::Use::kAccumulate : epochs::Use::kFetch;
  if (operation.call == Counted::kPut) use = epochs::Use::kPut;
  if (operation.call == Counted::kGet) use = epochs::Use::kGet;
  Strict::Epoch epoch = Strict::Epoch::kFence;
  bool of_lock_all = false;
  {
    const auto held = window_.guard();
    const Access access = window_.epoch.access();
    of_lock_all = access == Access::kLockedAll && !window_.lock_all_unchecked;
    if (access == Access::kStarted) epoch = Strict::Epoch::kStarted;
    if (access == Access::kLocked || access == Access::kLockedAll) epoch = Strict::Epoch::kPassive;
  }
  if (of_lock_all) {
    if (Outcome o = check_not_exposed(target.rank); !o) return o;
  }
  return strict_.watch({static_cast<Call>(operation.call),
                        use,
                        operation.element,
                        epoch,
                        operation.reads_origin ? &here : nullptr,
                        fetched ? &*fetched : nullptr,
                        {target.rank, operation.at, target.count, operation.target_type},
                        target.watched},
                       [&] { return Operations(window_).execute(operation); });
}

// Refuses an operation under a lock_all on a rank that is exposed by a post (MPI 4.0 section 12.5.3).
Outcome StrictCalls::check_not_exposed(int rank) {
  epochs::ReadExposure<ControlMemory> look(window_.control, rank);
  const Status looked = run(window_.space->words().wake_event(), look);
  return looked && look.exposed() ? Outcome(kOperationWhilePosted) : Outcome(looked);
}

Outcome StrictCalls::fence(int assert) {
  const auto call = [&] { return ActiveTarget(window_).fence(assert); };
  if ((assert & ~ActiveTarget::kFenceAsserts) != 0 || epoch().fence(ActiveTarget::assert_of_fence(assert)))
    return call();
  Outcome done = checked([&] { return strict_.fence_reached(); }, call);
  strict_.fence_passed((assert& MPI_MODE_NOSUCCEED) == 0);
  return done;
}

Outcome StrictCalls::complete() {
  const auto call = [&] { return ActiveTarget(window_).complete(); };
  EpochState before = epoch();
  if (!before.started() || before.complete()) return call();
  return checked([&] { return strict_.start_completed(); }, call);
}

// A call that may end the exposure.
template <class Call>
Outcome StrictCalls::end_exposure(Call&& call) {
  const bool exposed = exposure() == Exposure::kPosted;
  Outcome done = call();
  if (!exposed || exposure() >= Exposure::kPosting) return done;
  return first_of(std::move(done), without_bad_alloc([&] { return strict_.exposure_ended(); }));
}

Outcome StrictCalls::wait() {
  return end_exposure([&] { return ActiveTarget(window_).wait(); });
}

Outcome StrictCalls::test(int* flag) {
  return end_exposure([&] { return ActiveTarget(window_).test(flag); });
}

Outcome StrictCalls::unlock(int rank, epochs::HeldLock& released) {
  const auto call = [&] { return PassiveTarget(window_).unlock(rank, released); };
  EpochState after = epoch();
  if (!is_rank(rank) || !after.locked(rank) || after.unlock(rank) || after.locked(rank)) return call();
  return checked([&] { return strict_.completed(rank, holds_alone(rank)); }, call);
}

Outcome StrictCalls::unlock_all() {
  const auto call = [&] { return PassiveTarget(window_).unlock_all(); };
  EpochState after = epoch();
  if (after.access() != Access::kLockedAll || after.unlock_all() || after.access() == Access::kLockedAll) return call();
  return checked([&] { return strict_.completed_all(); }, call);
}

Outcome StrictCalls::flush(int rank, Completion completion) {
  const auto call = [&] { return PassiveTarget(window_).flush(rank); };
  EpochState before = epoch();
  if (!is_rank(rank) || before.flush(rank)) return call();
  const auto check = [&] {
    return completion == Completion::kLocal ? strict_.locally_completed(rank)
                                            : strict_.completed(rank, holds_alone(rank));
  };
  return checked(check, call);
}

Outcome StrictCalls::flush_all(Completion completion) {
  const auto call = [&] { return PassiveTarget(window_).flush_all(); };
  if (epoch().flush_all()) return call();
  const auto check = [&] {
    return completion == Completion::kLocal ? strict_.locally_completed_all() : strict_.completed_all();
  };
  return checked(check, call);
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// Entry points: communication calls (MPI 4.0 sections 12.3.1 to 12.3.5), with int counts and, where the runtime has
// those calls, with MPI_Count; and the same with a notification. The forms that only repeat come from the rows
// FARSIDE_OPERATION of the list of calls.
#include "pmpi/entries/entry.hpp"
#include "pmpi/window/requests.hpp"

namespace farside::pmpi {
namespace {

template <Counted kind>
[[gnu::always_inline]] inline bool attempt(Window& window, const Operation& operation) {
  const LocalBuffer& origin = operation.origin;
  if constexpr (kind == Counted::kPut) return window.operations().try_put(origin, operation.target);
  if constexpr (kind == Counted::kGet) return window.operations().try_get(origin, operation.target);
  const LocalBuffer* const result = kind == Counted::kFetch ? &operation.result : nullptr;
  return window.operations().try_accumulate(origin, result, operation.target, operation.op);
}

// The fast path of an operation.
template <Counted kind, class... Args>
[[gnu::always_inline]] inline bool attempt(Args... arguments) {
  const Operation operation(kind, arguments...);
  return on_fast_path(operation.win, [&](Window& window) { return attempt<kind>(window, operation); });
}

// The slow path. Each instance has one caller, so the compiler propagates `name` and `original`. The other parameters
// are those of the entry point in their order, so they stay in their registers.
template <Counted kind, class Function, class... Args>
[[gnu::noinline]] int operate(const char* name, Function Runtime::*original, Args... arguments) {
  Operation operation(kind, arguments...);
  return on_window(
      operation.win, {name, operation.target.rank}, [&](Window& window) { return window.operate(operation); }, original,
      arguments...);
}

// Both paths.
template <Counted kind>
Status carry_out(Window& window, Operation& operation) {
  return attempt<kind>(window, operation) ? Status() : window.operate(operation);
}

// Those of a request-based operation (MPI 4.0 section 12.3.5), which `carry_out` carries out.
template <class CarryOut>
Status with_request(const char* name, Window& window, Operation& operation, MPI_Request* request,
                    CarryOut&& carry_out) {
  Requests& requests = *library().requests;  // made before the operation begins, in case there is no memory
  const int rank = operation.target.rank;
  std::unique_ptr<Pending> own;
  if (Status o = window.operations().begin_request(rank, own); !o) return o;
  std::uint64_t watched = 0;
  operation.target.own = own.get();
  operation.target.watched = &watched;
  if (Status done = carry_out(window, operation); !done) {
    window.operations().abandon_request(rank, std::move(own));
    return done;
  }
  if (rank != MPI_PROC_NULL) WindowState::progress_runtime();
  return requests.start(name, window, rank, std::move(own), watched, request);
}
template <Counted kind, class Function, class... Args>
[[gnu::noinline]] int operate_with_request(const char* name, Function Runtime::*original, MPI_Request* request,
                                           Args... arguments) {
  Operation operation(kind, arguments...);
  return on_window(
      operation.win, {name, operation.target.rank},
      [&](Window& window) { return with_request(name, window, operation, request, carry_out<kind>); }, original,
      arguments..., request);
}

// The fast path of a notified operation.
template <Counted kind, class... Args>
[[gnu::always_inline]] inline bool attempt_notified(int counter, Args... arguments) {
  const Operation operation(kind, arguments...);
  return on_fast_path(operation.win, [&](Window& window) {
    Notifications notifications = window.notifications();
    const int rank = operation.target.rank;
    if (!notifications.has_mapped(rank, counter) || !attempt<kind>(window, operation)) return false;
    notifications.notify_mapped(rank, counter);
    return true;
  });
}

// The slow path. `request`: null, or of a request-based operation.
template <Counted kind, class... Args>
[[gnu::noinline]] int operate_notified(const char* name, int counter, MPI_Request* request, Args... arguments) {
  Operation operation(kind, arguments...);
  operation.notifies = true;
  const int rank = operation.target.rank;
  const auto notified = [&](Window& window, Operation& checked) {
    std::uint32_t last_interruption = 0;
    Status done = window.notifications().begin(rank, counter, last_interruption);
    if (done) done = carry_out<kind>(window, checked);
    return done ? window.notifications().notify(rank, counter, last_interruption) : std::move(done);
  };
  return on_farside_window(operation.win, {name, rank}, [&](Window& window) {
    return request == nullptr ? notified(window, operation) : with_request(name, window, operation, request, notified);
  });
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;
using farside::Counted;

// The parameters and the arguments of the calls of each kind.
#define FARSIDE_TARGET(Count) int rank, MPI_Aint displacement, Count target_count, MPI_Datatype target_type
#define FARSIDE_PARAMETERS_kPut(Count) \
  const void *origin, Count origin_count, MPI_Datatype origin_type, FARSIDE_TARGET(Count)
#define FARSIDE_PARAMETERS_kGet(Count) void *origin, Count origin_count, MPI_Datatype origin_type, FARSIDE_TARGET(Count)
#define FARSIDE_PARAMETERS_kAccumulate(Count) \
  const void *origin, Count origin_count, MPI_Datatype origin_type, FARSIDE_TARGET(Count), MPI_Op op
#define FARSIDE_PARAMETERS_kFetch(Count)                                                              \
  const void *origin, Count origin_count, MPI_Datatype origin_type, void *result, Count result_count, \
      MPI_Datatype result_type, FARSIDE_TARGET(Count), MPI_Op op
#define FARSIDE_TARGET_ARGUMENTS rank, displacement, target_count, target_type
#define FARSIDE_ARGUMENTS_kPut origin, origin_count, origin_type, FARSIDE_TARGET_ARGUMENTS, win
#define FARSIDE_ARGUMENTS_kGet FARSIDE_ARGUMENTS_kPut
#define FARSIDE_ARGUMENTS_kAccumulate origin, origin_count, origin_type, FARSIDE_TARGET_ARGUMENTS, op, win
#define FARSIDE_ARGUMENTS_kFetch \
  origin, origin_count, origin_type, result, result_count, result_type, FARSIDE_TARGET_ARGUMENTS, op, win

// The entry points of one row of the list of calls. `large`: empty, or _c.
#define FARSIDE_OPERATION_OF(name, request_based, Kind, Count)                                           \
  FARSIDE_TRIED_ENTRY(name, (FARSIDE_PARAMETERS_##Kind(Count), MPI_Win win), (FARSIDE_ARGUMENTS_##Kind), \
                      attempt<Counted::Kind>(FARSIDE_ARGUMENTS_##Kind),                                  \
                      operate<Counted::Kind>("MPI_" #name, &Runtime::name, FARSIDE_ARGUMENTS_##Kind))    \
  FARSIDE_ENTRY(request_based, (FARSIDE_PARAMETERS_##Kind(Count), MPI_Win win, MPI_Request * request),   \
                (FARSIDE_ARGUMENTS_##Kind, request)) {                                                   \
    return operate_with_request<Counted::Kind>("MPI_" #request_based, &Runtime::request_based, request,  \
                                               FARSIDE_ARGUMENTS_##Kind);                                \
  }
#define FARSIDE_NOTIFIED_OF(name, request_based, Kind, Count, large)                                      \
  FARSIDE_OWN_ENTRY(name##_notify##large, (FARSIDE_PARAMETERS_##Kind(Count), int counter, MPI_Win win)) { \
    if (attempt_notified<Counted::Kind>(counter, FARSIDE_ARGUMENTS_##Kind)) [[likely]]                    \
      return MPI_SUCCESS;                                                                                 \
    return operate_notified<Counted::Kind>("MPIX_" #name "_notify" #large, counter, nullptr,              \
                                           FARSIDE_ARGUMENTS_##Kind);                                     \
  }                                                                                                       \
  FARSIDE_OWN_ENTRY(request_based##_notify##large,                                                        \
                    (FARSIDE_PARAMETERS_##Kind(Count), int counter, MPI_Win win, MPI_Request* request)) { \
    return operate_notified<Counted::Kind>("MPIX_" #request_based "_notify" #large, counter, request,     \
                                           FARSIDE_ARGUMENTS_##Kind);                                     \
  }
#define FARSIDE_OPERATION(name, request_based, Kind)    \
  FARSIDE_OPERATION_OF(name, request_based, Kind, int)  \
  FARSIDE_NOTIFIED_OF(name, request_based, Kind, int, ) \
  FARSIDE_LARGE_OPERATION(name, request_based, Kind)
#if MPI_VERSION >= 4
#define FARSIDE_LARGE_OPERATION(name, request_based, Kind)           \
  FARSIDE_OPERATION_OF(name##_c, request_based##_c, Kind, MPI_Count) \
  FARSIDE_NOTIFIED_OF(name, request_based, Kind, MPI_Count, _c)
#else
#define FARSIDE_LARGE_OPERATION(name, request_based, Kind)
#endif
#define FARSIDE_CALL(name)
#include "pmpi/runtime/calls.def"

FARSIDE_TRIED_ENTRY(Fetch_and_op,
                    (const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement, MPI_Op op,
                     MPI_Win win),
                    (origin, result, type, rank, displacement, op, win),
                    on_fast_path(win,
                                 [&](Window& w) {
                                   return w.operations().try_fetch_and_op(origin, result, type, rank, displacement, op);
                                 }),
                    operate<Counted::kFetch>("MPI_Fetch_and_op", &Runtime::Fetch_and_op, origin, result, type, rank,
                                             displacement, op, win))
FARSIDE_TRIED_ENTRY(Compare_and_swap,
                    (const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                     MPI_Aint displacement, MPI_Win win),
                    (origin, compare, result, type, rank, displacement, win),
                    on_fast_path(win,
                                 [&](Window& w) {
                                   return w.operations().try_compare_and_swap(origin, compare, result, type, rank,
                                                                              displacement);
                                 }),
                    operate<Counted::kCompareAndSwap>("MPI_Compare_and_swap", &Runtime::Compare_and_swap, origin,
                                                      compare, result, type, rank, displacement, win))

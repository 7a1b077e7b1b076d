// SPDX-License-Identifier: BSD-3-Clause
// Entry points: communication calls (MPI 4.0 sections 12.3.1 to 12.3.5), with int counts and, where the runtime has
// those calls, with MPI_Count. The forms that only repeat come from the rows FARSIDE_OPERATION of the list of calls.
#include "pmpi/entries/entry.hpp"
#include "pmpi/window/requests.hpp"

namespace farside::pmpi {
namespace {

// Carries out a request-based operation (MPI 4.0 section 12.3.5).
template <class Operation>
Outcome with_request(const char* call, Window& window, RemoteBuffer target, MPI_Request* request,
                     Operation&& operation) {
  Requests& requests = *library().requests;  // made before the operation begins, in case there is no memory
  std::unique_ptr<Outstanding> own;
  if (Outcome o = window.operations().begin_request(target.rank, own); !o) return o;
  target.own = own.get();
  std::uint64_t watched = 0;
  target.watched = &watched;
  if (Outcome done = operation(target); !done) {
    window.operations().abandon_request(target.rank, std::move(own));
    return done;
  }
  Operations::end_request(target.rank);
  return requests.start(call, window, target.rank, std::move(own), watched, request);
}

// The arguments of an operation, and its two paths. The request-based forms keep a target's buffer of their own.
template <Counted kind>
struct OperationCall {
  // Put and get.
  OperationCall(const void* origin, std::int64_t origin_count, MPI_Datatype origin_type, int rank,
                MPI_Aint displacement, std::int64_t target_count, MPI_Datatype target_type, MPI_Win handle)
      : from{const_cast<void*>(origin), origin_count, origin_type},
        target{rank, displacement, target_count, target_type},
        win(handle) {}
  OperationCall(const void* origin, std::int64_t origin_count, MPI_Datatype origin_type, int rank,
                MPI_Aint displacement, std::int64_t target_count, MPI_Datatype target_type, MPI_Op with, MPI_Win handle)
      : OperationCall(origin, origin_count, origin_type, rank, displacement, target_count, target_type, handle) {
    op = with;
  }
  OperationCall(const void* origin, std::int64_t origin_count, MPI_Datatype origin_type, void* result,
                std::int64_t result_count, MPI_Datatype result_type, int rank, MPI_Aint displacement,
                std::int64_t target_count, MPI_Datatype target_type, MPI_Op with, MPI_Win handle)
      : OperationCall(origin, origin_count, origin_type, rank, displacement, target_count, target_type, with, handle) {
    fetched = {result, result_count, result_type};
  }
  [[gnu::always_inline]] bool attempt(Window& window, const RemoteBuffer& to) const {
    if constexpr (kind == Counted::kPut) return window.operations().try_put(from, to);
    if constexpr (kind == Counted::kGet) return window.operations().try_get(from, to);
    return window.operations().try_accumulate(from, result(), to, op);
  }
  Outcome operate(Window& window, const RemoteBuffer& to) const {
    if constexpr (kind == Counted::kPut) return window.calls().put(from, to);
    if constexpr (kind == Counted::kGet) return window.calls().get(from, to);
    return window.calls().accumulate(from, result(), to, op);
  }
  const LocalBuffer* result() const { return kind == Counted::kFetch ? &fetched : nullptr; }
  LocalBuffer from, fetched{};
  RemoteBuffer target;
  MPI_Op op{};
  MPI_Win win;
};
using PutCall = OperationCall<Counted::kPut>;
using GetCall = OperationCall<Counted::kGet>;
using AccumulateCall = OperationCall<Counted::kAccumulate>;
using GetAccumulateCall = OperationCall<Counted::kFetch>;

// The fast path of an operation.
template <class Call, class... Args>
[[gnu::always_inline]] inline bool attempt(Args... arguments) {
  const Call call(arguments...);
  return on_fast_path(call.win, [&](Window& window) { return call.attempt(window, call.target); });
}

// The slow path. Each instance has one caller, so the compiler propagates `name` and `original`. The other parameters
// are those of the entry point in their order, so they stay in their registers.
template <class Call, class Function, class... Args>
[[gnu::noinline]] int operate(const char* name, Function Runtime::*original, Args... arguments) {
  const Call call(arguments...);
  return on_window(
      call.win, {name, call.target.rank}, [&](Window& window) { return call.operate(window, call.target); }, original,
      arguments...);
}

// Both paths, with a request.
template <class Call, class Function, class... Args>
[[gnu::noinline]] int operate_with_request(const char* name, Function Runtime::*original, MPI_Request* request,
                                           Args... arguments) {
  const Call call(arguments...);
  const auto body = [&](Window& window) {
    return with_request(name, window, call.target, request, [&](const RemoteBuffer& target) {
      return call.attempt(window, target) ? Outcome() : call.operate(window, target);
    });
  };
  return on_window(call.win, {name, call.target.rank}, body, original, arguments..., request);
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

// The parameters and the arguments of the calls of each kind.
#define FARSIDE_TARGET(Count) int rank, MPI_Aint displacement, Count target_count, MPI_Datatype target_type
#define FARSIDE_PARAMETERS_PutCall(Count) \
  const void *origin, Count origin_count, MPI_Datatype origin_type, FARSIDE_TARGET(Count), MPI_Win win
#define FARSIDE_PARAMETERS_GetCall(Count) \
  void *origin, Count origin_count, MPI_Datatype origin_type, FARSIDE_TARGET(Count), MPI_Win win
#define FARSIDE_PARAMETERS_AccumulateCall(Count) \
  const void *origin, Count origin_count, MPI_Datatype origin_type, FARSIDE_TARGET(Count), MPI_Op op, MPI_Win win
#define FARSIDE_PARAMETERS_GetAccumulateCall(Count)                                                   \
  const void *origin, Count origin_count, MPI_Datatype origin_type, void *result, Count result_count, \
      MPI_Datatype result_type, FARSIDE_TARGET(Count), MPI_Op op, MPI_Win win
#define FARSIDE_TARGET_ARGUMENTS rank, displacement, target_count, target_type
#define FARSIDE_ARGUMENTS_PutCall origin, origin_count, origin_type, FARSIDE_TARGET_ARGUMENTS, win
#define FARSIDE_ARGUMENTS_GetCall FARSIDE_ARGUMENTS_PutCall
#define FARSIDE_ARGUMENTS_AccumulateCall origin, origin_count, origin_type, FARSIDE_TARGET_ARGUMENTS, op, win
#define FARSIDE_ARGUMENTS_GetAccumulateCall \
  origin, origin_count, origin_type, result, result_count, result_type, FARSIDE_TARGET_ARGUMENTS, op, win

// The entry points of one row of the list of calls.
#define FARSIDE_OPERATION_OF(name, request_based, Kind, Count)                                 \
  FARSIDE_TRIED_ENTRY(name, (FARSIDE_PARAMETERS_##Kind(Count)), (FARSIDE_ARGUMENTS_##Kind),    \
                      attempt<Kind>(FARSIDE_ARGUMENTS_##Kind),                                 \
                      operate<Kind>("MPI_" #name, &Runtime::name, FARSIDE_ARGUMENTS_##Kind))   \
  FARSIDE_ENTRY(request_based, (FARSIDE_PARAMETERS_##Kind(Count), MPI_Request * request),      \
                (FARSIDE_ARGUMENTS_##Kind, request)) {                                         \
    return operate_with_request<Kind>("MPI_" #request_based, &Runtime::request_based, request, \
                                      FARSIDE_ARGUMENTS_##Kind);                               \
  }
#if MPI_VERSION >= 4
#define FARSIDE_OPERATION(name, request_based, Kind)   \
  FARSIDE_OPERATION_OF(name, request_based, Kind, int) \
  FARSIDE_OPERATION_OF(name##_c, request_based##_c, Kind, MPI_Count)
#else
#define FARSIDE_OPERATION(name, request_based, Kind) FARSIDE_OPERATION_OF(name, request_based, Kind, int)
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
                    on_calls({"MPI_Fetch_and_op", rank}, &Calls::fetch_and_op, &Runtime::Fetch_and_op, win, origin,
                             result, type, rank, displacement, op))
FARSIDE_TRIED_ENTRY(Compare_and_swap,
                    (const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                     MPI_Aint displacement, MPI_Win win),
                    (origin, compare, result, type, rank, displacement, win),
                    on_fast_path(win,
                                 [&](Window& w) {
                                   return w.operations().try_compare_and_swap(origin, compare, result, type, rank,
                                                                              displacement);
                                 }),
                    on_calls({"MPI_Compare_and_swap", rank}, &Calls::compare_and_swap, &Runtime::Compare_and_swap, win,
                             origin, compare, result, type, rank, displacement))

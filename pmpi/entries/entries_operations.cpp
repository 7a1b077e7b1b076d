// SPDX-License-Identifier: BSD-3-Clause
// Entry points: communication calls (MPI 4.0 sections 12.3.1 to 12.3.5), with int counts and, where the runtime has
// those calls, with MPI_Count.
#include "pmpi/entries/entry.hpp"
#include "pmpi/window/requests.hpp"

namespace farside::pmpi {
namespace {

// Carries out a request-based operation (MPI 4.0 section 12.3.5).
template <class Operation>
Outcome with_request(const char* call, Window& window, RemoteBuffer target, MPI_Request* request,
                     Operation&& operation) {
  std::unique_ptr<Outstanding> own;
  if (Outcome o = window.begin_request_operation(target.rank, own); !o) return o;
  target.own = own.get();
  std::uint64_t watched = 0;
  target.watched = &watched;
  if (Outcome done = operation(target); !done) {
    window.abandon_request(target.rank, std::move(own));
    return done;
  }
  window.end_request_operation(target.rank);
  return Requests::instance().start(call, window, target.rank, std::move(own), watched, request);
}

template <class Count, class Function, class... Args>
[[gnu::noinline]] int put(const char* call, Function Runtime::*original, const void* origin, Count origin_count,
                          MPI_Datatype origin_type, int rank, MPI_Aint displacement, Count target_count,
                          MPI_Datatype target_type, MPI_Win win, Args... request) {
  const LocalBuffer from{const_cast<void*>(origin), origin_count, origin_type};
  const RemoteBuffer to{rank, displacement, target_count, target_type};
  const auto body = [&](Window& w) {
    if constexpr (sizeof...(request) == 0) {
      return w.put(from, to);
    } else {
      return with_request(call, w, to, request..., [&](const RemoteBuffer& target) {
        return w.try_put(from, target) ? Outcome() : w.put(from, target);
      });
    }
  };
  return on_window(win, {call, rank}, body, original, origin, origin_count, origin_type, rank, displacement,
                   target_count, target_type, win, request...);
}

template <class Count, class Function, class... Args>
[[gnu::noinline]] int get(const char* call, Function Runtime::*original, void* origin, Count origin_count,
                          MPI_Datatype origin_type, int rank, MPI_Aint displacement, Count target_count,
                          MPI_Datatype target_type, MPI_Win win, Args... request) {
  const LocalBuffer to{origin, origin_count, origin_type};
  const RemoteBuffer from{rank, displacement, target_count, target_type};
  const auto body = [&](Window& w) {
    if constexpr (sizeof...(request) == 0) {
      return w.get(to, from);
    } else {
      return with_request(call, w, from, request..., [&](const RemoteBuffer& target) {
        return w.try_get(to, target) ? Outcome() : w.get(to, target);
      });
    }
  };
  return on_window(win, {call, rank}, body, original, origin, origin_count, origin_type, rank, displacement,
                   target_count, target_type, win, request...);
}

template <class Count, class Function, class... Args>
[[gnu::noinline]] int accumulate(const char* call, Function Runtime::*original, const void* origin, Count origin_count,
               MPI_Datatype origin_type, int rank, MPI_Aint displacement, Count target_count, MPI_Datatype target_type,
               MPI_Op op, MPI_Win win, Args... request) {
  const LocalBuffer from{const_cast<void*>(origin), origin_count, origin_type};
  const RemoteBuffer to{rank, displacement, target_count, target_type};
  const auto body = [&](Window& w) {
    if constexpr (sizeof...(request) == 0) {
      return w.accumulate(from, nullptr, to, op);
    } else {
      return with_request(call, w, to, request..., [&](const RemoteBuffer& target) {
        return w.try_accumulate(from, nullptr, target, op) ? Outcome() : w.accumulate(from, nullptr, target, op);
      });
    }
  };
  return on_window(win, {call, rank}, body, original, origin, origin_count, origin_type, rank, displacement,
                   target_count, target_type, op, win, request...);
}

template <class Count, class Function, class... Args>
[[gnu::noinline]] int get_accumulate(const char* call, Function Runtime::*original, const void* origin,
                                     Count origin_count, MPI_Datatype origin_type, void* result, Count result_count,
                                     MPI_Datatype result_type, int rank, MPI_Aint displacement, Count target_count,
                                     MPI_Datatype target_type, MPI_Op op, MPI_Win win, Args... request) {
  const LocalBuffer from{const_cast<void*>(origin), origin_count, origin_type};
  const LocalBuffer fetched{result, result_count, result_type};
  const RemoteBuffer to{rank, displacement, target_count, target_type};
  const auto body = [&](Window& w) {
    if constexpr (sizeof...(request) == 0) {
      return w.accumulate(from, &fetched, to, op);
    } else {
      return with_request(call, w, to, request..., [&](const RemoteBuffer& target) {
        return w.try_accumulate(from, &fetched, target, op) ? Outcome() : w.accumulate(from, &fetched, target, op);
      });
    }
  };
  return on_window(win, {call, rank}, body, original, origin, origin_count, origin_type, result, result_count,
                   result_type, rank, displacement, target_count, target_type, op, win, request...);
}

[[gnu::noinline]] int fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement,
                                   MPI_Op op, MPI_Win win) {
  return on_window(win, {"MPI_Fetch_and_op", rank},
                   [&](Window& w) { return w.fetch_and_op(origin, result, type, rank, displacement, op); },
                   &Runtime::Fetch_and_op, origin, result, type, rank, displacement, op, win);
}

[[gnu::noinline]] int compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type,
                                       int rank, MPI_Aint displacement, MPI_Win win) {
  return on_window(win, {"MPI_Compare_and_swap", rank},
                   [&](Window& w) { return w.compare_and_swap(origin, compare, result, type, rank, displacement); },
                   &Runtime::Compare_and_swap, origin, compare, result, type, rank, displacement, win);
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

FARSIDE_ENTRY(Put, (const void* origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint displacement,
                    int target_count, MPI_Datatype target_type, MPI_Win win)) {
  const bool done = on_fast_path(win, [&](Window& w) {
    return w.try_put({const_cast<void*>(origin), origin_count, origin_type},
                     {rank, displacement, target_count, target_type});
  });
  if (done) [[likely]] return MPI_SUCCESS;
  return put("MPI_Put", &Runtime::Put, origin, origin_count, origin_type, rank, displacement, target_count, target_type,
             win);
}
FARSIDE_ENTRY(Get, (void* origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint displacement,
                    int target_count, MPI_Datatype target_type, MPI_Win win)) {
  const bool done = on_fast_path(win, [&](Window& w) {
    return w.try_get({origin, origin_count, origin_type}, {rank, displacement, target_count, target_type});
  });
  if (done) [[likely]] return MPI_SUCCESS;
  return get("MPI_Get", &Runtime::Get, origin, origin_count, origin_type, rank, displacement, target_count, target_type,
             win);
}
FARSIDE_ENTRY(Accumulate, (const void* origin, int origin_count, MPI_Datatype origin_type, int rank,
                           MPI_Aint displacement, int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)) {
  const bool done = on_fast_path(win, [&](Window& w) {
    return w.try_accumulate({const_cast<void*>(origin), origin_count, origin_type}, nullptr,
                            {rank, displacement, target_count, target_type}, op);
  });
  if (done) [[likely]] return MPI_SUCCESS;
  return accumulate("MPI_Accumulate", &Runtime::Accumulate, origin, origin_count, origin_type, rank, displacement,
                    target_count, target_type, op, win);
}
FARSIDE_ENTRY(Get_accumulate, (const void* origin, int origin_count, MPI_Datatype origin_type, void* result,
                               int result_count, MPI_Datatype result_type, int rank, MPI_Aint displacement,
                               int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)) {
  const bool done = on_fast_path(win, [&](Window& w) {
    const LocalBuffer fetched{result, result_count, result_type};
    return w.try_accumulate({const_cast<void*>(origin), origin_count, origin_type}, &fetched,
                            {rank, displacement, target_count, target_type}, op);
  });
  if (done) [[likely]] return MPI_SUCCESS;
  return get_accumulate("MPI_Get_accumulate", &Runtime::Get_accumulate, origin, origin_count, origin_type, result,
                        result_count, result_type, rank, displacement, target_count, target_type, op, win);
}
FARSIDE_ENTRY(Fetch_and_op, (const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement,
                             MPI_Op op, MPI_Win win)) {
  const auto fast_path = [&](Window& w) { return w.try_fetch_and_op(origin, result, type, rank, displacement, op); };
  if (on_fast_path(win, fast_path)) [[likely]]
    return MPI_SUCCESS;
  return fetch_and_op(origin, result, type, rank, displacement, op, win);
}
FARSIDE_ENTRY(Compare_and_swap, (const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                                 MPI_Aint displacement, MPI_Win win)) {
  const auto fast_path = [&](Window& w) {
    return w.try_compare_and_swap(origin, compare, result, type, rank, displacement);
  };
  if (on_fast_path(win, fast_path)) [[likely]]
    return MPI_SUCCESS;
  return compare_and_swap(origin, compare, result, type, rank, displacement, win);
}
FARSIDE_ENTRY(Rput, (const void* origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint displacement,
                     int target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request* request)) {
  return put("MPI_Rput", &Runtime::Rput, origin, origin_count, origin_type, rank, displacement, target_count,
             target_type, win, request);
}
FARSIDE_ENTRY(Rget, (void* origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint displacement,
                     int target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request* request)) {
  return get("MPI_Rget", &Runtime::Rget, origin, origin_count, origin_type, rank, displacement, target_count,
             target_type, win, request);
}
FARSIDE_ENTRY(Raccumulate, (const void* origin, int origin_count, MPI_Datatype origin_type, int rank,
                            MPI_Aint displacement, int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win,
                            MPI_Request* request)) {
  return accumulate("MPI_Raccumulate", &Runtime::Raccumulate, origin, origin_count, origin_type, rank, displacement,
                    target_count, target_type, op, win, request);
}
FARSIDE_ENTRY(Rget_accumulate, (const void* origin, int origin_count, MPI_Datatype origin_type, void* result,
                                int result_count, MPI_Datatype result_type, int rank, MPI_Aint displacement,
                                int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win,
                                MPI_Request* request)) {
  return get_accumulate("MPI_Rget_accumulate", &Runtime::Rget_accumulate, origin, origin_count, origin_type, result,
                        result_count, result_type, rank, displacement, target_count, target_type, op, win, request);
}

#if MPI_VERSION >= 4
FARSIDE_ENTRY(Put_c, (const void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank,
                      MPI_Aint displacement, MPI_Count target_count, MPI_Datatype target_type, MPI_Win win)) {
  return put("MPI_Put_c", &Runtime::Put_c, origin, origin_count, origin_type, rank, displacement, target_count,
             target_type, win);
}
FARSIDE_ENTRY(Get_c, (void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint displacement,
                      MPI_Count target_count, MPI_Datatype target_type, MPI_Win win)) {
  return get("MPI_Get_c", &Runtime::Get_c, origin, origin_count, origin_type, rank, displacement, target_count,
             target_type, win);
}
FARSIDE_ENTRY(Accumulate_c,
              (const void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint displacement,
               MPI_Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)) {
  return accumulate("MPI_Accumulate_c", &Runtime::Accumulate_c, origin, origin_count, origin_type, rank, displacement,
                    target_count, target_type, op, win);
}
FARSIDE_ENTRY(Get_accumulate_c,
              (const void* origin, MPI_Count origin_count, MPI_Datatype origin_type, void* result,
               MPI_Count result_count, MPI_Datatype result_type, int rank, MPI_Aint displacement,
               MPI_Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)) {
  return get_accumulate("MPI_Get_accumulate_c", &Runtime::Get_accumulate_c, origin, origin_count, origin_type, result,
                        result_count, result_type, rank, displacement, target_count, target_type, op, win);
}
FARSIDE_ENTRY(Rput_c, (const void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank,
                       MPI_Aint displacement, MPI_Count target_count, MPI_Datatype target_type, MPI_Win win,
                       MPI_Request* request)) {
  return put("MPI_Rput_c", &Runtime::Rput_c, origin, origin_count, origin_type, rank, displacement, target_count,
             target_type, win, request);
}
FARSIDE_ENTRY(Rget_c, (void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint displacement,
                       MPI_Count target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request* request)) {
  return get("MPI_Rget_c", &Runtime::Rget_c, origin, origin_count, origin_type, rank, displacement, target_count,
             target_type, win, request);
}
FARSIDE_ENTRY(Raccumulate_c,
              (const void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint displacement,
               MPI_Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request* request)) {
  return accumulate("MPI_Raccumulate_c", &Runtime::Raccumulate_c, origin, origin_count, origin_type, rank, displacement,
                    target_count, target_type, op, win, request);
}
FARSIDE_ENTRY(Rget_accumulate_c,
              (const void* origin, MPI_Count origin_count, MPI_Datatype origin_type, void* result,
               MPI_Count result_count, MPI_Datatype result_type, int rank, MPI_Aint displacement,
               MPI_Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request* request)) {
  return get_accumulate("MPI_Rget_accumulate_c", &Runtime::Rget_accumulate_c, origin, origin_count, origin_type, result,
                        result_count, result_type, rank, displacement, target_count, target_type, op, win, request);
}
#endif

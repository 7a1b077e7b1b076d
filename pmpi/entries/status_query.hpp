// SPDX-License-Identifier: BSD-3-Clause
// The calls that query the status of requests and leave the requests to the program (MPI 4.1 section 3.7.6). The
// program completes them later, and gets the errors of their operations then. `original` is the runtime's call, without
// arguments: older runtimes have none for several requests, and tests bring their own.
//
// Thread safety, cost: those of Requests::look() and show(). The codes are those of `original`.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <mpi.h>

#include "pmpi/window/requests.hpp"

namespace farside::pmpi {

// Completes farside's requests whose operations are over, and asks the runtime. `each_reported(show)` then calls `show`
// with the index of each request that the runtime has reported complete.
template <class Original, class EachReported>
int query_status(std::span<const MPI_Request> requests, Original&& original, EachReported&& each_reported) {
  if (!Requests::any()) [[likely]]
    return original();
  Requests& pending = *library().requests;
  // Without memory the requests are not complete yet.
  (void)without_bad_alloc([&] { pending.look(requests); });
  const int code = original();
  if (code != MPI_SUCCESS) return code;
  each_reported([&](int index) { pending.show(requests[static_cast<std::size_t>(index)]); });
  return code;
}

// The pointers that follow are results of the runtime's call.
template <class Original>
int query_one(const MPI_Request& request, const int* flag, Original&& original) {
  return query_status({&request, 1}, std::forward<Original>(original), [&](auto&& show) {
    if (*flag != 0) show(0);
  });
}

template <class Original>
int query_any(std::span<const MPI_Request> requests, const int* index, const int* flag, Original&& original) {
  return query_status(requests, std::forward<Original>(original), [&](auto&& show) {
    if (*flag != 0 && *index != MPI_UNDEFINED) show(*index);
  });
}

template <class Original>
int query_all(std::span<const MPI_Request> requests, const int* flag, Original&& original) {
  return query_status(requests, std::forward<Original>(original), [&](auto&& show) {
    for (std::size_t i = 0; *flag != 0 && i < requests.size(); ++i) show(static_cast<int>(i));
  });
}

template <class Original>
int query_some(std::span<const MPI_Request> requests, const int* completed, const int* indices, Original&& original) {
  return query_status(requests, std::forward<Original>(original), [&](auto&& show) {
    for (int i = 0; *completed != MPI_UNDEFINED && i < *completed; ++i) show(indices[i]);
  });
}

}  // namespace farside::pmpi

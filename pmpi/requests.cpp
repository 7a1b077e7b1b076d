// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/requests.hpp"

#include <algorithm>
#include <utility>

#include "pmpi/runtime.hpp"
#include "pmpi/window.hpp"
#include "pmpi/window_table.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {

constinit Requests Requests::instance_;

Outcome Requests::start(const char* call, Window& window, int rank, MPI_Request* request) {
  const auto query = [](void*, MPI_Status* status) {
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return static_cast<int>(MPI_SUCCESS);
  };
  const auto nothing = [](void*) { return static_cast<int>(MPI_SUCCESS); };
  const auto cancel = [](void*, int) { return static_cast<int>(MPI_SUCCESS); };
  int code = PMPI_Grequest_start(query, nothing, cancel, nullptr, request);
  if (code == MPI_SUCCESS) {
    if (!window.operations_over(rank)) {
      const std::scoped_lock held(mutex_);
      entries_.push_back({*request, &window, rank, call});
      under_way_.store(entries_.size(), std::memory_order_relaxed);
      return {};
    }
    Outcome ended = window.end_of_operations(rank);
    code = PMPI_Grequest_complete(*request);
    if (!ended) {
      runtime().Wait(request, MPI_STATUS_IGNORE);
      return ended;
    }
  }
  return code == MPI_SUCCESS ? Outcome() : Outcome(Fault{code, "the runtime made no request"});
}

Requests::Look Requests::look(std::span<const MPI_Request> requests) {
  struct Ended {
    std::size_t index;
    Entry entry;
    MPI_Win window;
    Outcome outcome;
  };
  Look found;
  std::vector<Ended> ended;
  Process::instance().poll();
  {
    const std::scoped_lock held(mutex_);
    for (std::size_t i = 0; i < requests.size() && !entries_.empty(); ++i) {
      if (requests[i] == MPI_REQUEST_NULL) continue;
      const auto entry = std::ranges::find(entries_, requests[i], &Entry::handle);
      if (entry == entries_.end()) continue;
      if (!entry->window->operations_over(entry->rank)) {
        ++found.waiting;
        continue;
      }
      ended.push_back({i, *entry, entry->window->handle(), entry->window->end_of_operations(entry->rank)});
      *entry = entries_.back();
      entries_.pop_back();
    }
    under_way_.store(entries_.size(), std::memory_order_relaxed);
  }
  // Out of the lock: the runtime and the user's error handlers.
  for (const Ended& each : ended) {
    if (!each.outcome) {
      found.failed.push_back(each.index);
      found.code = each.outcome.fault().error_class;
      if (Window* const window = WindowTable::instance().find(each.window)) {
        window->raise({each.entry.call, each.entry.rank}, each.outcome.fault());
      }
    }
    PMPI_Grequest_complete(each.entry.handle);
  }
  return found;
}

Requests::Look Requests::wait(std::span<const MPI_Request> requests) {
  Look all = look(requests);
  for (Waiter waiter(Process::instance(), Process::instance().own_bell()); all.waiting > 0;) {
    waiter.pause();
    Look more = look(requests);
    all.waiting = more.waiting;
    all.failed.insert(all.failed.end(), more.failed.begin(), more.failed.end());
    if (more.code != MPI_SUCCESS) all.code = more.code;
  }
  return all;
}

template <class Which>
void Requests::give_up_those(Which&& which) {
  std::vector<MPI_Request> handles;
  {
    const std::scoped_lock held(mutex_);
    std::erase_if(entries_, [&](const Entry& entry) {
      const bool goes = which(entry);
      if (goes) handles.push_back(entry.handle);
      return goes;
    });
    under_way_.store(entries_.size(), std::memory_order_relaxed);
  }
  for (MPI_Request handle : handles) PMPI_Grequest_complete(handle);
}

void Requests::give_up(MPI_Request request) {
  give_up_those([&](const Entry& entry) { return entry.handle == request; });
}

void Requests::give_up(const Window& window) {
  give_up_those([&](const Entry& entry) { return entry.window == &window; });
}

}  // namespace farside::pmpi

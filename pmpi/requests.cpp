// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/requests.hpp"

#include <algorithm>
#include <utility>

#include "pmpi/runtime.hpp"
#include "pmpi/synchronization.hpp"
#include "pmpi/window.hpp"
#include "pmpi/window_table.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {

constinit Requests Requests::instance_;

Outcome Requests::start(const char* call, Window& window, int rank, std::unique_ptr<Outstanding> own,
                        MPI_Request* request) {
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
  if (code != MPI_SUCCESS) {
    window.give_up_request(rank, std::move(own));
    return Fault{code, "the runtime made no request"};
  }
  if (own != nullptr && !own->done()) {
    const std::scoped_lock held(mutex_);
    entries_.push_back({*request, &window, rank, call, std::move(own)});
    count();
    return {};
  }
  Outcome ended = own != nullptr ? Outcome(own->take_error()) : Outcome();
  code = PMPI_Grequest_complete(*request);
  if (!ended) {
    runtime().Wait(request, MPI_STATUS_IGNORE);
    return ended;
  }
  return code == MPI_SUCCESS ? Outcome() : Outcome(Fault{code, "the runtime did not complete the request"});
}

void Requests::count() {
  kept_.store(entries_.size() + failed_.size(), std::memory_order_relaxed);
  failures_.store(failed_.size(), std::memory_order_relaxed);
}

void Requests::end(Entry& entry, std::vector<MPI_Request>& ended) {
  if (const Outcome outcome = entry.own->take_error(); !outcome) {
    failed_.push_back({entry.handle, entry.window->handle(), entry.rank, entry.call, outcome.fault()});
  }
  ended.push_back(entry.handle);
  if (&entry != &entries_.back()) entry = std::move(entries_.back());
  entries_.pop_back();
  count();
}

int Requests::look(std::span<const MPI_Request> requests) {
  int waiting = 0;
  std::vector<MPI_Request> ended;
  Process::instance().poll();
  {
    const std::scoped_lock held(mutex_);
    for (const MPI_Request request : requests) {
      if (request == MPI_REQUEST_NULL || entries_.empty()) continue;
      const auto entry = std::ranges::find(entries_, request, &Entry::handle);
      if (entry == entries_.end()) continue;
      if (entry->own->done()) {
        end(*entry, ended);
      } else {
        ++waiting;
      }
    }
  }
  // Out of the lock: the runtime.
  for (MPI_Request handle : ended) PMPI_Grequest_complete(handle);
  return waiting;
}

void Requests::wait(std::span<const MPI_Request> requests) {
  wait_until(Process::instance().own_bell(), [&] { return look(requests) == 0; });
}

int Requests::take_failure(MPI_Request request) {
  std::unique_lock held(mutex_);
  const auto found = std::ranges::find(failed_, request, &Failure::handle);
  if (found == failed_.end()) return MPI_SUCCESS;
  const Failure failure = std::move(*found);
  failed_.erase(found);
  count();
  held.unlock();
  // Out of the lock: the user's error handler.
  Window* const window = WindowTable::instance().find(failure.window);
  return window != nullptr ? window->raise({failure.call, failure.rank}, failure.fault) : failure.fault.error_class;
}

void Requests::give_up(MPI_Request request) {
  bool found = false;
  {
    const std::scoped_lock held(mutex_);
    std::erase_if(entries_, [&](Entry& entry) {
      if (entry.handle != request) return false;
      entry.window->give_up_request(entry.rank, std::move(entry.own));
      return found = true;
    });
    count();
  }
  if (found) PMPI_Grequest_complete(request);
}

void Requests::give_up(const Window& window) {
  std::vector<MPI_Request> ended;
  {
    const std::scoped_lock held(mutex_);
    for (std::size_t i = 0; i < entries_.size();) {
      if (entries_[i].window == &window) end(entries_[i], ended);
      else ++i;
    }
  }
  for (MPI_Request handle : ended) PMPI_Grequest_complete(handle);
}

}  // namespace farside::pmpi

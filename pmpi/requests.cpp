// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/requests.hpp"

#include <iterator>
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
    kept().entries.insert_or_assign(*request, Entry{&window, rank, call, std::move(own)});
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

// Made at the first use, and never destroyed: threads may complete requests while the process exits.
Requests::Kept& Requests::kept() {
  static Kept* const kept = new Kept;
  return *kept;
}

void Requests::count() {
  const Kept& all = kept();
  kept_.store(all.entries.size() + all.failed.size(), std::memory_order_relaxed);
  failures_.store(all.failed.size(), std::memory_order_relaxed);
}

Requests::EntryAt Requests::end(EntryAt entry, std::vector<MPI_Request>& ended) {
  const auto& [handle, kept_entry] = *entry;
  if (const Outcome outcome = kept_entry.own->take_error(); !outcome) {
    const Window& window = *kept_entry.window;
    kept().failed.insert_or_assign(handle, Failure{window.handle(), kept_entry.rank, kept_entry.call, outcome.fault()});
  }
  ended.push_back(handle);
  const EntryAt next = kept().entries.erase(entry);
  count();
  return next;
}

int Requests::look(std::span<const MPI_Request> requests) {
  int waiting = 0;
  std::vector<MPI_Request> ended;
  Process::instance().poll();
  {
    const std::scoped_lock held(mutex_);
    auto& entries = kept().entries;
    for (const MPI_Request request : requests) {
      if (request == MPI_REQUEST_NULL || entries.empty()) continue;
      const auto entry = entries.find(request);
      if (entry == entries.end()) continue;
      if (entry->second.own->done()) {
        end(entry, ended);
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
  if (look(requests) == 0) return;
  // In turn: while one is under way nothing is gained by looking at those behind it.
  for (const MPI_Request& request : requests) {
    wait_until(Process::instance().own_bell(), [&] { return look({&request, 1}) == 0; });
  }
}

int Requests::take_failure(MPI_Request request) {
  std::unique_lock held(mutex_);
  auto& failed = kept().failed;
  const auto found = failed.find(request);
  if (found == failed.end()) return MPI_SUCCESS;
  const Failure failure = std::move(found->second);
  failed.erase(found);
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
    auto& entries = kept().entries;
    if (const auto entry = entries.find(request); entry != entries.end()) {
      entry->second.window->give_up_request(entry->second.rank, std::move(entry->second.own));
      entries.erase(entry);
      found = true;
    }
    count();
  }
  if (found) PMPI_Grequest_complete(request);
}

void Requests::give_up(const Window& window) {
  std::vector<MPI_Request> ended;
  {
    const std::scoped_lock held(mutex_);
    auto& entries = kept().entries;
    for (auto entry = entries.begin(); entry != entries.end();) {
      entry = entry->second.window == &window ? end(entry, ended) : std::next(entry);
    }
  }
  for (MPI_Request handle : ended) PMPI_Grequest_complete(handle);
}

}  // namespace farside::pmpi

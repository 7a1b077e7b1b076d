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
                        std::uint64_t watched, MPI_Request* request) {
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
    kept().entries.insert_or_assign(*request, Entry{&window, rank, call, std::move(own), watched});
    count();
    return {};
  }
  Outcome ended = own != nullptr ? Outcome(own->take_error()) : Outcome();
  code = PMPI_Grequest_complete(*request);
  if (!ended) {
    runtime().Wait(request, MPI_STATUS_IGNORE);
    return ended;
  }
  if (watched != 0) {
    const std::scoped_lock held(mutex_);
    kept().ended.insert_or_assign(*request, Ended{window.handle(), rank, call, watched, {}});
    count();
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
  kept_.store(all.entries.size() + all.ended.size(), std::memory_order_relaxed);
  to_tell_.store(all.ended.size(), std::memory_order_relaxed);
}

Requests::EntryAt Requests::end(EntryAt entry, std::vector<MPI_Request>& ended) {
  const auto& [handle, its] = *entry;
  const Outcome outcome = its.own->take_error();
  if (!outcome || its.watched != 0) {
    Ended to_tell{its.window->handle(), its.rank, its.call, its.watched, {}};
    if (!outcome) to_tell.fault = outcome.fault();
    kept().ended.insert_or_assign(handle, std::move(to_tell));
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

int Requests::tell(MPI_Request request) {
  std::unique_lock held(mutex_);
  auto node = kept().ended.extract(request);
  if (node.empty()) return MPI_SUCCESS;
  count();
  held.unlock();
  // Out of the lock: what may wait, and the user's error handler.
  Ended& ended = node.mapped();
  Window* const window = WindowTable::instance().find(ended.window);
  Outcome outcome = ended.fault ? Outcome(std::move(*ended.fault)) : Outcome();
  if (window != nullptr) outcome = first_of(std::move(outcome), window->request_completed(ended.watched));
  if (outcome) return MPI_SUCCESS;
  return window != nullptr ? window->raise({ended.call, ended.rank}, outcome.fault()) : outcome.fault().error_class;
}

void Requests::show(MPI_Request request) {
  std::unique_lock held(mutex_);
  const auto found = kept().ended.find(request);
  if (found == kept().ended.end() || found->second.watched == 0) return;
  const std::uint64_t watched = std::exchange(found->second.watched, 0);
  Window* const window = WindowTable::instance().find(found->second.window);
  held.unlock();
  const Outcome outcome = window->request_completed(watched);
  held.lock();
  // Nobody else completes the request meanwhile (MPI 4.0 section 11.6.2).
  const auto again = kept().ended.find(request);
  if (again == kept().ended.end()) return;
  if (!outcome && !again->second.fault) again->second.fault = outcome.fault();
  if (!again->second.fault) kept().ended.erase(again);
  count();
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
    // Nothing completes it any more but what completes all operations of its target.
    auto& ended = kept().ended;
    if (const auto over = ended.find(request); over != ended.end()) {
      over->second.watched = 0;
      if (!over->second.fault) ended.erase(over);
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
    // Its end has completed what was watched.
    auto& over = kept().ended;
    for (auto each = over.begin(); each != over.end();) {
      const bool its = each->second.window == window.handle();
      if (its) each->second.watched = 0;
      each = its && !each->second.fault ? over.erase(each) : std::next(each);
    }
    count();
  }
  for (MPI_Request handle : ended) PMPI_Grequest_complete(handle);
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/requests.hpp"

#include <algorithm>
#include <thread>

#include "pmpi/library/handle_table.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/window.hpp"
#include "pmpi/window/window_state.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {

WindowHold::WindowHold(const Window& window) : holds_(window.holds()) {
  ++*holds_;
  ++this_thread.windows_held;
}

WindowHold::~WindowHold() {
  --this_thread.windows_held;
  --*holds_;
}

Status Requests::start(const char* call, Window& window, int rank, std::unique_ptr<Pending> own, std::uint64_t watched,
                       MPI_Request* request) {
  const auto query = [](void*, MPI_Status* status) {
    runtime().Status_set_elements(status, MPI_BYTE, 0);
    runtime().Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return static_cast<int>(MPI_SUCCESS);
  };
  const auto freed = [](void* operation) {
    if (operation != nullptr) library().requests->freed(*static_cast<Entry*>(operation));
    return static_cast<int>(MPI_SUCCESS);
  };
  const auto cancel = [](void*, int) { return static_cast<int>(MPI_SUCCESS); };
  const bool over = own == nullptr || own->done();
  Status ended = over && own != nullptr ? Status(own->take_error()) : Status();
  std::unique_ptr<Entry> operation;
  if (!over || (ended && watched != 0))
    operation.reset(new (std::nothrow) Entry{&window, rank, call, nullptr, watched});
  int code = runtime().Grequest_start(query, freed, cancel, operation.get(), request);
  if (code != MPI_SUCCESS) {
    window.operations().abandon_request(rank, std::move(own));
    return Fault{code, "the runtime made no request"};
  }
  bool entered = false;
  if (operation != nullptr) {
    operation->request = *request;
    std::vector<MPI_Request> finished;
    (void)without_bad_alloc([&] {
      Part& part = part_of(*request);
      const std::scoped_lock held(part.mutex);
      part.operations[key_of_handle(*request)] = operation.get();
      entered = true;
      part.count.store(part.operations.size(), std::memory_order_relaxed);
      if (!any()) library().any_requests.store(true, std::memory_order_relaxed);
      if (over) to_report_.fetch_add(1, std::memory_order_relaxed);
      if (!over) operation->own = std::move(own);
      if (part.operations.size() >= part.look_at) finished = end_finished(part);
    });
    if (!entered) operation->watched = 0;
    (void)operation.release();  // freed() deletes it
    for (const MPI_Request each : finished) runtime().Grequest_complete(each);
  }
  if (!over) {
    if (entered) return {};
    // Without memory for the state of the request, the operation is over when this call returns.
    wait_until(Process::instance().own_wake_event(), [&] { return own->done(); });
    ended = own->take_error();
  }
  code = runtime().Grequest_complete(*request);
  if (!ended) {
    runtime().Wait(request, MPI_STATUS_IGNORE);
    return ended;
  }
  return code == MPI_SUCCESS ? Status() : Status(Fault{code, "the runtime did not complete the request"});
}

// Relaxed: a thread that has the handle of a request sees that it was counted.
Requests::Found Requests::find(MPI_Request request) {
  if (request == MPI_REQUEST_NULL) return {};
  Part& part = part_of(request);
  if (part.count.load(std::memory_order_relaxed) == 0) return {};
  Found found{std::unique_lock(part.mutex), &part, nullptr};
  const auto place = part.operations.find(key_of_handle(request));
  if (place != part.operations.end()) found.operation = place->second;
  return found;
}

void Requests::drop(Part& part, const Entry& operation) {
  const auto place = part.operations.find(key_of_handle(operation.request));
  if (place == part.operations.end() || place->second != &operation) return;
  part.operations.erase(place);
  part.count.store(part.operations.size(), std::memory_order_relaxed);
}

std::vector<MPI_Request> Requests::end_finished(Part& part) {
  std::vector<MPI_Request> finished;
  finished.reserve(part.operations.size());
  for (auto next = part.operations.begin(); next != part.operations.end();) {
    Entry& operation = *(next++)->second;  // which may leave the table
    if (operation.own == nullptr || !operation.own->done()) continue;
    finished.push_back(operation.request);
    end(part, operation);
  }
  part.look_at = std::max(kFewInPart, 2 * part.operations.size());
  return finished;
}

bool Requests::any_to_report(std::size_t requests) const {
  if (to_report_.load(std::memory_order_relaxed) == 0) return false;
  freed_here().clear();
  freed_here().reserve(requests);
  return true;
}

template <class Change>
void Requests::change(Entry& operation, Change&& change) {
  const bool before = operation.to_report();
  change();
  if (before && !operation.to_report()) to_report_.fetch_sub(1, std::memory_order_relaxed);
  if (!before && operation.to_report()) to_report_.fetch_add(1, std::memory_order_relaxed);
}

void Requests::end(Part& part, Entry& operation) {
  change(operation, [&] {
    operation.result = operation.own->take_error();
    operation.own = nullptr;
  });
  if (!operation.to_report()) drop(part, operation);
}

void Requests::freed(Entry& operation) {
  std::unique_ptr<Entry> taken(&operation);
  Part& part = part_of(operation.request);
  const std::scoped_lock held(part.mutex);
  drop(part, operation);
  if (!taken->to_report()) return;
  if (taken->window != nullptr) taken->hold.emplace(*taken->window);
  to_report_.fetch_sub(1, std::memory_order_relaxed);
  // The runtime calls this function. The call that completes the request has reserved the place (any_to_report), unless
  // the error came after that; without a place it is lost.
  (void)without_bad_alloc([&] { freed_here().push_back(std::move(taken)); });
}

int Requests::look(std::span<const MPI_Request> requests) {
  for (bool polled = false;; polled = true) {
    int waiting = 0;
    for (const MPI_Request request : requests) {
      {
        const Found found = find(request);
        if (found.operation == nullptr || found.operation->own == nullptr) continue;
        if (!found.operation->own->done()) {
          ++waiting;
          continue;
        }
        end(*found.part, *found.operation);
      }
      // Outside the mutex, because the runtime may call freed().
      runtime().Grequest_complete(request);
    }
    if (waiting == 0 || polled) return waiting;
    Process::instance().poll();
  }
}

void Requests::wait(std::span<const MPI_Request> requests) {
  if (look(requests) == 0) return;
  const ReasonOf reason([&](std::chrono::seconds waited) { return report_wait(requests, waited); });
  // One after the other: while one is under way, a check of the later ones gains nothing.
  for (const MPI_Request& request : requests) {
    wait_until(Process::instance().own_wake_event(), [&] { return look({&request, 1}) == 0; });
  }
}

std::string Requests::report_wait(std::span<const MPI_Request> requests, std::chrono::seconds waited) {
  for (const MPI_Request request : requests) {
    Found found = find(request);
    const Entry* const operation = found.operation;
    if (operation == nullptr || operation->own == nullptr || operation->window == nullptr) continue;
    Window& window = *operation->window;
    const WindowHold hold(window);
    const int rank = operation->rank;
    const char* const call = operation->call;
    found.held.unlock();
    WaitReports reports = window.reports();
    return reports.report_wait("a call that completes requests", waited, reports.awaited_by_request(call, rank));
  }
  return {};
}

int Requests::report(MPI_Request request) {
  auto& freed = freed_here();
  const auto found = std::ranges::find(freed, request, [](const auto& each) { return each->request; });
  if (found == freed.end()) return MPI_SUCCESS;
  const std::unique_ptr<Entry> operation = std::move(*found);
  freed.erase(found);
  // The mutex is not held here: these calls may wait, or run the user's error handler.
  Window* const window = operation->window;
  Status status = std::move(operation->result);
  if (window != nullptr) status.keep(window->request_completed(operation->watched));
  if (status) return MPI_SUCCESS;
  return window != nullptr ? window->raise({operation->call, operation->rank}, status.error())
                           : class_of(status.error());
}

void Requests::show(MPI_Request request) {
  Found found = find(request);
  Entry* const operation = found.operation;
  if (operation == nullptr || operation->own != nullptr || operation->watched == 0) return;
  std::uint64_t watched = 0;
  change(*operation, [&] { watched = std::exchange(operation->watched, 0); });
  // No other thread may complete the request meanwhile (MPI 4.0 section 11.6.2).
  const WindowHold hold(*operation->window);
  Window& window = *operation->window;
  found.held.unlock();
  Status status = window.request_completed(watched);
  found.held.lock();
  change(*operation, [&] { operation->result.keep(std::move(status)); });
}

void Requests::abandon(MPI_Request request) {
  {
    const Found found = find(request);
    Entry* const operation = found.operation;
    if (operation == nullptr) return;
    const bool under_way = operation->own != nullptr;
    // From now on only a call that completes all operations of the target completes this one.
    change(*operation, [&] {
      operation->watched = 0;
      if (!under_way) return;
      operation->window->operations().abandon_request(operation->rank, std::move(operation->own));
      operation->own = nullptr;
    });
    if (!under_way) return;
  }
  runtime().Grequest_complete(request);
}

void Requests::abandon(const Window& window) {
  for (Part& part : parts_) {
    std::vector<MPI_Request> ended;
    {
      const std::scoped_lock held(part.mutex);
      ended.reserve(part.operations.size());
      for (auto next = part.operations.begin(); next != part.operations.end();) {
        Entry& operation = *(next++)->second;  // which may leave the table
        if (operation.window != &window) continue;
        operation.window = nullptr;
        // The end of the window has completed the watched operations.
        change(operation, [&] { operation.watched = 0; });
        if (operation.own != nullptr) {
          ended.push_back(operation.request);
          end(part, operation);
        } else if (!operation.to_report()) {
          drop(part, operation);
        }
      }
    }
    for (MPI_Request handle : ended) runtime().Grequest_complete(handle);
  }
  while (window.is_held() && this_thread.windows_held == 0) std::this_thread::yield();
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/requests.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/synchronization.hpp"
#include "pmpi/window/window.hpp"
#include "transport/base/per_thread.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {

constinit Requests Requests::instance_;

Outcome Requests::start(const char* call, Window& window, int rank, std::unique_ptr<Outstanding> own,
                        std::uint64_t watched, MPI_Request* request) {
  const auto query = [](void*, MPI_Status* status) {
    runtime().Status_set_elements(status, MPI_BYTE, 0);
    runtime().Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return static_cast<int>(MPI_SUCCESS);
  };
  const auto freed = [](void* operation) {
    if (operation != nullptr) instance_.freed(*static_cast<Operation*>(operation));
    return static_cast<int>(MPI_SUCCESS);
  };
  const auto cancel = [](void*, int) { return static_cast<int>(MPI_SUCCESS); };
  const bool over = own == nullptr || own->done();
  Outcome ended = over && own != nullptr ? Outcome(own->take_error()) : Outcome();
  std::unique_ptr<Operation> operation;
  if (!over || (ended && watched != 0)) {
    operation = std::make_unique<Operation>(Operation{&window, rank, call, over ? nullptr : std::move(own), watched});
  }
  int code = runtime().Grequest_start(query, freed, cancel, operation.get(), request);
  if (code != MPI_SUCCESS) {
    window.abandon_request(rank, operation != nullptr && !over ? std::move(operation->own) : std::move(own));
    return Fault{code, "the runtime made no request"};
  }
  if (operation != nullptr) {
    Place& place = find_or_make(*request);
    operation->request = *request;
    operation->place = &place;
    if (over) to_report_.fetch_add(1, std::memory_order_relaxed);
    if (!any()) any_.store(true, std::memory_order_relaxed);
    const std::scoped_lock held(place.mutex);
    place.operation = std::move(operation);
  }
  if (!over) return {};
  code = runtime().Grequest_complete(*request);
  if (!ended) {
    runtime().Wait(request, MPI_STATUS_IGNORE);
    return ended;
  }
  return code == MPI_SUCCESS ? Outcome() : Outcome(Fault{code, "the runtime did not complete the request"});
}

Requests::Place& Requests::find_or_make(MPI_Request request) {
  if (Place* const place = find(request)) return *place;
  auto place = std::make_unique<Place>();
  places_.insert(key_of_handle(request), place.get());
  return *place.release();
}

std::vector<std::unique_ptr<Requests::Operation>>& Requests::freed_here() {
  return PerThread<std::vector<std::unique_ptr<Operation>>>::here();
}

bool Requests::any_to_report() const {
  if (to_report_.load(std::memory_order_relaxed) == 0) return false;
  freed_here().clear();
  return true;
}

template <class Change>
void Requests::change(Operation& operation, Change&& change) {
  const bool before = operation.to_report();
  change();
  if (before && !operation.to_report()) to_report_.fetch_sub(1, std::memory_order_relaxed);
  if (!before && operation.to_report()) to_report_.fetch_add(1, std::memory_order_relaxed);
}

void Requests::end(Operation& operation) {
  change(operation, [&] {
    const Outcome outcome = operation.own->take_error();
    if (!outcome) operation.fault = outcome.fault();
    operation.own = nullptr;
  });
}

void Requests::freed(Operation& operation) {
  Place& place = *operation.place;
  const std::scoped_lock held(place.mutex);
  std::unique_ptr<Operation> taken = std::move(place.operation);
  if (!taken->to_report()) return;
  to_report_.fetch_sub(1, std::memory_order_relaxed);
  freed_here().push_back(std::move(taken));
}

int Requests::look(std::span<const MPI_Request> requests) {
  const int waiting = complete_finished(requests);
  if (waiting == 0) return 0;
  Process::instance().poll();
  return complete_finished(requests);
}

int Requests::complete_finished(std::span<const MPI_Request> requests) {
  int waiting = 0;
  for (const MPI_Request request : requests) {
    Place* const place = find(request);
    if (place == nullptr) continue;
    {
      const std::scoped_lock held(place->mutex);
      Operation* const operation = place->operation.get();
      if (operation == nullptr || operation->own == nullptr) continue;
      if (!operation->own->done()) {
        ++waiting;
        continue;
      }
      end(*operation);
    }
    // Outside the mutex, because the runtime may call freed().
    runtime().Grequest_complete(request);
  }
  return waiting;
}

void Requests::wait(std::span<const MPI_Request> requests) {
  if (look(requests) == 0) return;
  const RequestsReason reason(requests);
  // One after the other: while one is under way, a check of the later ones gains nothing.
  for (const MPI_Request& request : requests) {
    wait_until(Process::instance().own_wake_event(), [&] { return look({&request, 1}) == 0; });
  }
}

std::string Requests::report_wait(std::span<const MPI_Request> requests, std::chrono::seconds waited) const {
  for (const MPI_Request request : requests) {
    Place* const place = find(request);
    if (place == nullptr) continue;
    std::unique_lock held(place->mutex);
    const Operation* const operation = place->operation.get();
    if (operation == nullptr || operation->own == nullptr || operation->window == nullptr) continue;
    Window& window = *operation->window;
    const int rank = operation->rank;
    const char* const call = operation->call;
    held.unlock();
    Window::Awaited awaited = window.awaited_by_operations(rank);
    awaited.what = fmt::format("for rank {} to acknowledge its {}", rank, call);
    return window.report_wait("a call that completes requests", waited, awaited);
  }
  return {};
}

int Requests::report(MPI_Request request) {
  auto& freed = freed_here();
  const auto found = std::ranges::find(freed, request, [](const auto& each) { return each->request; });
  if (found == freed.end()) return MPI_SUCCESS;
  const std::unique_ptr<Operation> operation = std::move(*found);
  freed.erase(found);
  // The mutex is not held here: these calls may wait, or run the user's error handler.
  Window* const window = operation->window;
  Outcome outcome = operation->fault ? Outcome(std::move(*operation->fault)) : Outcome();
  if (window != nullptr) outcome = first_of(std::move(outcome), window->request_completed(operation->watched));
  if (outcome) return MPI_SUCCESS;
  return window != nullptr ? window->raise({operation->call, operation->rank}, outcome.fault())
                           : outcome.fault().error_class;
}

void Requests::show(MPI_Request request) {
  Place* const place = find(request);
  if (place == nullptr) return;
  std::unique_lock held(place->mutex);
  Operation* const operation = place->operation.get();
  if (operation == nullptr || operation->own != nullptr || operation->watched == 0) return;
  std::uint64_t watched = 0;
  change(*operation, [&] { watched = std::exchange(operation->watched, 0); });
  // No other thread may complete the request meanwhile (MPI 4.0 section 11.6.2).
  held.unlock();
  const Outcome outcome = operation->window->request_completed(watched);
  held.lock();
  change(*operation, [&] {
    if (!outcome && !operation->fault) operation->fault = outcome.fault();
  });
}

void Requests::abandon(MPI_Request request) {
  Place* const place = find(request);
  if (place == nullptr) return;
  {
    const std::scoped_lock held(place->mutex);
    Operation* const operation = place->operation.get();
    if (operation == nullptr) return;
    const bool under_way = operation->own != nullptr;
    // From now on only a call that completes all operations of the target completes this one.
    change(*operation, [&] {
      operation->watched = 0;
      if (!under_way) return;
      operation->window->abandon_request(operation->rank, std::move(operation->own));
      operation->own = nullptr;
    });
    if (!under_way) return;
  }
  runtime().Grequest_complete(request);
}

void Requests::abandon(const Window& window) {
  if (!any()) return;
  std::vector<MPI_Request> ended;
  places_.each([&](Place& place) {
    const std::scoped_lock held(place.mutex);
    Operation* const operation = place.operation.get();
    if (operation == nullptr || operation->window != &window) return;
    if (operation->own != nullptr) {
      end(*operation);
      ended.push_back(operation->request);
    }
    // The end of the window has completed the watched operations.
    change(*operation, [&] { operation->watched = 0; });
    operation->window = nullptr;
  });
  for (MPI_Request handle : ended) runtime().Grequest_complete(handle);
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/requests.hpp"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "pmpi/library/handle_table.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/window.hpp"
#include "pmpi/window/window_state.hpp"
#include "transport/base/threads.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {

namespace {

// A window that this thread holds, and that may be freed in an error handler that a report calls.
class WindowHold {
 public:
  explicit WindowHold(Window& window) : window_(window) {
    window_.hold();
    ++this_thread.windows_held;
  }
  WindowHold(const WindowHold&) = delete;
  WindowHold& operator=(const WindowHold&) = delete;
  ~WindowHold() {
    --this_thread.windows_held;
    window_.let_go();
  }

 private:
  Window& window_;
};

}  // namespace

Requests::Operation::~Operation() {
  if (!holds_window) return;
  --this_thread.windows_held;
  window->let_go();
}

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
    if (operation != nullptr) library().requests->freed(*static_cast<Operation*>(operation));
    return static_cast<int>(MPI_SUCCESS);
  };
  const auto cancel = [](void*, int) { return static_cast<int>(MPI_SUCCESS); };
  bool over = own == nullptr || own->done();
  Outcome ended = over && own != nullptr ? Outcome(own->take_error()) : Outcome();
  // Without memory for the state of the request, the operation is over when this call returns.
  const auto end_now = [&] {
    wait_until(Process::instance().own_wake_event(), [&] { return own->done(); });
    ended = own->take_error();
    over = true;
  };
  std::unique_ptr<Operation> operation;
  if (!over || (ended && watched != 0)) {
    operation.reset(new (std::nothrow) Operation{&window, rank, call, nullptr, watched});
    if (operation == nullptr && !over) end_now();
  }
  int code = runtime().Grequest_start(query, freed, cancel, operation.get(), request);
  if (code != MPI_SUCCESS) {
    window.operations().abandon_request(rank, std::move(own));
    return Fault{code, "the runtime made no request"};
  }
  if (operation != nullptr) {
    operation->request = *request;
    std::vector<MPI_Request> finished;
    bool entered = false;
    (void)without_bad_alloc([&]() -> Status {
      Part& part = part_of(*request);
      const std::scoped_lock held(part.mutex);
      part.operations[key_of_handle(*request)] = operation.get();
      entered = true;
      if (over) {
        to_report_.fetch_add(1, std::memory_order_relaxed);
      } else {
        operation->own = std::move(own);
      }
      if (!any()) library().any_requests.store(true, std::memory_order_relaxed);
      part.count.store(part.operations.size(), std::memory_order_relaxed);
      if (part.operations.size() < part.look_at) return {};
      finished = end_finished(part);
      return {};
    });
    if (!entered) operation->watched = 0;
    if (!entered && !over) end_now();
    (void)operation.release();  // freed() deletes it
    for (const MPI_Request each : finished) runtime().Grequest_complete(each);
  }
  if (!over) return {};
  code = runtime().Grequest_complete(*request);
  if (!ended) {
    runtime().Wait(request, MPI_STATUS_IGNORE);
    return ended;
  }
  return code == MPI_SUCCESS ? Outcome() : Outcome(Fault{code, "the runtime did not complete the request"});
}

// The highest bits of the product spread numbers and addresses evenly.
Requests::Part& Requests::part_of(MPI_Request request) {
  static_assert(kParts == 64);
  return parts_[key_of_handle(request) * 0x9E3779B97F4A7C15ULL >> 58];
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

void Requests::drop(Part& part, const Operation& operation) {
  const auto place = part.operations.find(key_of_handle(operation.request));
  if (place == part.operations.end() || place->second != &operation) return;
  part.operations.erase(place);
  part.count.store(part.operations.size(), std::memory_order_relaxed);
}

std::vector<MPI_Request> Requests::end_finished(Part& part) {
  std::vector<MPI_Request> finished;
  std::vector<Operation*> over;
  for (const auto& [_, operation] : part.operations) {
    if (operation->own != nullptr && operation->own->done()) over.push_back(operation);
  }
  finished.reserve(over.size());
  for (Operation* const operation : over) {
    finished.push_back(operation->request);
    end(part, *operation);
  }
  part.look_at = std::max(kFewInPart, 2 * part.operations.size());
  return finished;
}

std::vector<std::unique_ptr<Requests::Operation>>& Requests::freed_here() {
  return PerThread<std::vector<std::unique_ptr<Operation>>>::here();
}

bool Requests::any_to_report(std::size_t requests) const {
  if (to_report_.load(std::memory_order_relaxed) == 0) return false;
  freed_here().clear();
  freed_here().reserve(requests);
  return true;
}

void Requests::drop_unreported() {
  if (this_thread.windows_held > 0) freed_here().clear();
}

template <class Change>
void Requests::change(Operation& operation, Change&& change) {
  const bool before = operation.to_report();
  change();
  if (before && !operation.to_report()) to_report_.fetch_sub(1, std::memory_order_relaxed);
  if (!before && operation.to_report()) to_report_.fetch_add(1, std::memory_order_relaxed);
}

void Requests::end(Part& part, Operation& operation) {
  change(operation, [&] {
    operation.result = operation.own->take_error();
    operation.own = nullptr;
  });
  if (!operation.to_report()) drop(part, operation);
}

void Requests::freed(Operation& operation) {
  std::unique_ptr<Operation> taken(&operation);
  Part& part = part_of(operation.request);
  const std::scoped_lock held(part.mutex);
  drop(part, operation);
  if (!taken->to_report()) return;
  if (taken->window != nullptr) {
    taken->window->hold();
    ++this_thread.windows_held;
    taken->holds_window = true;
  }
  to_report_.fetch_sub(1, std::memory_order_relaxed);
  // The runtime calls this function. The call that completes the request has reserved the place (any_to_report), unless
  // the error came after that; without a place it is lost.
  (void)without_bad_alloc([&]() -> Status {
    freed_here().push_back(std::move(taken));
    return {};
  });
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

std::string Requests::report_wait(std::span<const MPI_Request> requests, std::chrono::seconds waited) {
  for (const MPI_Request request : requests) {
    Found found = find(request);
    const Operation* const operation = found.operation;
    if (operation == nullptr || operation->own == nullptr || operation->window == nullptr) continue;
    Window& window = *operation->window;
    const WindowHold hold(window);
    const int rank = operation->rank;
    const char* const call = operation->call;
    found.held.unlock();
    WaitReports::Awaited awaited = window.reports().awaited_by_operations(rank);
    awaited.what = fmt::format("for rank {} to acknowledge its {}", rank, call);
    return window.reports().report_wait("a call that completes requests", waited, awaited);
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
  Outcome outcome = std::move(operation->result);
  if (window != nullptr) outcome = first_of(std::move(outcome), window->calls().request_completed(operation->watched));
  if (outcome) return MPI_SUCCESS;
  return window != nullptr ? window->raise({operation->call, operation->rank}, outcome.fault())
                           : outcome.fault().error_class;
}

void Requests::show(MPI_Request request) {
  Found found = find(request);
  Operation* const operation = found.operation;
  if (operation == nullptr || operation->own != nullptr || operation->watched == 0) return;
  std::uint64_t watched = 0;
  change(*operation, [&] { watched = std::exchange(operation->watched, 0); });
  // No other thread may complete the request meanwhile (MPI 4.0 section 11.6.2).
  const WindowHold hold(*operation->window);
  Window& window = *operation->window;
  found.held.unlock();
  Outcome outcome = window.calls().request_completed(watched);
  found.held.lock();
  change(*operation, [&] { operation->result = first_of(std::move(operation->result), std::move(outcome)); });
}

void Requests::abandon(MPI_Request request) {
  {
    const Found found = find(request);
    Operation* const operation = found.operation;
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
    std::vector<Operation*> of_window;
    std::vector<MPI_Request> ended;
    {
      const std::scoped_lock held(part.mutex);
      for (const auto& [_, operation] : part.operations) {
        if (operation->window == &window) of_window.push_back(operation);
      }
      ended.reserve(of_window.size());
      for (Operation* const operation : of_window) {
        operation->window = nullptr;
        if (operation->own != nullptr) {
          ended.push_back(operation->request);
          end(part, *operation);
        }
        // The end of the window has completed the watched operations.
        change(*operation, [&] { operation->watched = 0; });
        if (!operation->to_report()) drop(part, *operation);
      }
    }
    for (MPI_Request handle : ended) runtime().Grequest_complete(handle);
  }
  while (window.is_held() && this_thread.windows_held == 0) std::this_thread::yield();
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// Entry points: completion of requests (MPI 4.1 section 3.7). While no operation with a request is under way, the calls
// go to the runtime. Otherwise farside first completes its own requests whose operations are over.
#include <algorithm>
#include <span>
#include <vector>

#include "pmpi/entries/entry.hpp"
#include "pmpi/window/requests.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

std::span<const MPI_Request> list(int count, const MPI_Request* requests) {
  return {requests, count > 0 && requests != nullptr ? static_cast<std::size_t>(count) : 0};
}

// A copy of request handles, which the runtime sets to null when it completes the requests. With it the errors of
// farside's requests can be reported afterwards. Make it after Requests::look() or wait().
class Handles : NotCopied {
 public:
  explicit Handles(std::span<const MPI_Request> requests) {
    if (!library().requests->any_to_report(requests.size())) return;
    handles_.assign(requests.begin(), requests.end());
    codes_.resize(requests.size());
  }
  ~Handles() { Requests::drop_unreported(); }
  // Returns the error of a completed request, once; else MPI_SUCCESS.
  int report(int index) const {
    if (index < 0 || static_cast<std::size_t>(index) >= handles_.size()) return MPI_SUCCESS;
    return library().requests->report(handles_[static_cast<std::size_t>(index)]);
  }
  // Returns the code of a call that has completed one request. `code` is the runtime's.
  int of_one(int index, int code) const {
    const int failure = report(index);
    return code == MPI_SUCCESS ? failure : code;
  }
  // Returns the code of a call that has completed several requests. The statuses say which of them failed (MPI 4.0
  // section 3.7.5). `indices`: the completed requests, null for all.
  int of_many(int completed, const int* indices, MPI_Status* statuses, int code) const {
    if (handles_.empty()) return code;
    const std::span<int> codes = std::span(codes_).first(static_cast<std::size_t>(std::max(completed, 0)));
    for (int i = 0; i < completed; ++i) {
      codes[static_cast<std::size_t>(i)] = report(indices != nullptr ? indices[i] : i);
    }
    if (std::ranges::all_of(codes, [](int each) { return each == MPI_SUCCESS; })) return code;
    for (int i = 0; i < completed && statuses != MPI_STATUSES_IGNORE; ++i) {
      const int own = codes[static_cast<std::size_t>(i)];
      if (own != MPI_SUCCESS || code == MPI_SUCCESS) statuses[i].MPI_ERROR = own;
    }
    return MPI_ERR_IN_STATUS;
  }

 private:
  std::vector<MPI_Request> handles_;
  mutable std::vector<int> codes_;  // of the requests that a call has completed
};

constexpr const char* kCompletion = "a call that completes requests";

// Waits for any of several requests: tests repeatedly while some of them are farside's and under way, and else waits
// in the runtime. `test` sets `over`; `code_of`: as of complete().
template <class Test, class Wait, class CodeOf>
int wait_for_some(std::span<const MPI_Request> requests, Test&& test, Wait&& wait, CodeOf&& code_of) {
  return without_window(kCompletion, [&] {
    const ReasonOf reason(
        [&](std::chrono::seconds waited) { return library().requests->report_wait(requests, waited); });
    for (Waiter waiter(Process::instance(), Process::instance().own_wake_event());;) {
      const bool under_way = library().requests->look(requests) != 0;
      const Handles handles(requests);
      bool over = true;
      const int code = under_way ? test(over) : wait();
      if (over) return code_of(handles, code);
      if (code != MPI_SUCCESS) return code;
      waiter.pause();
    }
  });
}

// A call that completes requests, or queries their status. While no operation with a request is under way, it is the
// runtime's. Otherwise `prepare` completes farside's requests whose operations are over, and `code_of(handles, code)`
// returns what the call returns after the runtime has returned `code`.
template <class Prepare, class CodeOf, class Function, class... Args>
[[gnu::noinline]] int complete_own(std::span<const MPI_Request> requests, Prepare&& prepare, CodeOf&& code_of,
                                   Function Runtime::*original, Args... arguments) {
  return without_window(kCompletion, [&] {
    prepare(*library().requests, requests);
    const Handles handles(requests);
    return code_of(handles, (runtime().*original)(arguments...));
  });
}
template <class Prepare, class CodeOf, class Function, class... Args>
int complete(std::span<const MPI_Request> requests, Prepare&& prepare, CodeOf&& code_of, Function Runtime::*original,
             Args... arguments) {
  if (!Requests::any()) [[likely]]
    return (runtime().*original)(arguments...);
  return complete_own(requests, prepare, code_of, original, arguments...);
}

constexpr auto look = [](Requests& pending, std::span<const MPI_Request> requests) { pending.look(requests); };
constexpr auto wait = [](Requests& pending, std::span<const MPI_Request> requests) { pending.wait(requests); };

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

FARSIDE_ENTRY(Wait, (MPI_Request * request, MPI_Status* status), (request, status)) {
  const auto code_of = [](const Handles& handles, int code) { return handles.of_one(0, code); };
  return complete(list(1, request), wait, code_of, &Runtime::Wait, request, status);
}

FARSIDE_ENTRY(Test, (MPI_Request * request, int* flag, MPI_Status* status), (request, flag, status)) {
  const auto code_of = [&](const Handles& handles, int code) {
    return handles.of_one(*flag != 0 ? 0 : MPI_UNDEFINED, code);
  };
  return complete(list(1, request), look, code_of, &Runtime::Test, request, flag, status);
}

FARSIDE_ENTRY(Request_get_status, (MPI_Request request, int* flag, MPI_Status* status), (request, flag, status)) {
  const auto code_of = [&](const Handles&, int code) {
    if (code == MPI_SUCCESS && *flag != 0) library().requests->show(request);
    return code;
  };
  return complete(list(1, &request), look, code_of, &Runtime::Request_get_status, request, flag, status);
}

#if FARSIDE_HAS_STATUS_QUERIES
// The type of the list: const MPI_Request* in the standard; MPICH 4.2 has no const.
template <class List, class... Others>
List list_of(int (*query)(int, List, Others...));
using QueriedRequests = decltype(list_of(&MPI_Request_get_status_any));

FARSIDE_ENTRY(Request_get_status_any, (int count, QueriedRequests requests, int* index, int* flag, MPI_Status* status),
              (count, requests, index, flag, status)) {
  const auto code_of = [&](const Handles&, int code) {
    if (code == MPI_SUCCESS && *flag != 0 && *index != MPI_UNDEFINED) library().requests->show(requests[*index]);
    return code;
  };
  return complete(list(count, requests), look, code_of, &Runtime::Request_get_status_any, count, requests, index, flag,
                  status);
}

FARSIDE_ENTRY(Request_get_status_all, (int count, QueriedRequests requests, int* flag, MPI_Status statuses[]),
              (count, requests, flag, statuses)) {
  const auto code_of = [&](const Handles&, int code) {
    for (int i = 0; code == MPI_SUCCESS && *flag != 0 && i < count; ++i) library().requests->show(requests[i]);
    return code;
  };
  return complete(list(count, requests), look, code_of, &Runtime::Request_get_status_all, count, requests, flag,
                  statuses);
}

FARSIDE_ENTRY(Request_get_status_some,
              (int count, QueriedRequests requests, int* completed, int indices[], MPI_Status statuses[]),
              (count, requests, completed, indices, statuses)) {
  const auto code_of = [&](const Handles&, int code) {
    const int shown = code == MPI_SUCCESS && *completed != MPI_UNDEFINED ? *completed : 0;
    for (int i = 0; i < shown; ++i) library().requests->show(requests[indices[i]]);
    return code;
  };
  return complete(list(count, requests), look, code_of, &Runtime::Request_get_status_some, count, requests, completed,
                  indices, statuses);
}
#endif

FARSIDE_ENTRY(Request_free, (MPI_Request * request), (request)) {
  if (!Requests::any()) [[likely]]
    return runtime().Request_free(request);
  Requests& pending = *library().requests;
  return without_window("MPI_Request_free", [&] {
    const Handles handles(list(1, request));
    if (request != nullptr) pending.abandon(*request);
    return handles.of_one(0, runtime().Request_free(request));
  });
}

FARSIDE_ENTRY(Waitall, (int count, MPI_Request* requests, MPI_Status* statuses), (count, requests, statuses)) {
  const auto code_of = [&](const Handles& handles, int code) {
    return handles.of_many(count, nullptr, statuses, code);
  };
  return complete(list(count, requests), wait, code_of, &Runtime::Waitall, count, requests, statuses);
}

FARSIDE_ENTRY(Testall, (int count, MPI_Request* requests, int* flag, MPI_Status* statuses),
              (count, requests, flag, statuses)) {
  const auto code_of = [&](const Handles& handles, int code) {
    return handles.of_many(*flag != 0 ? count : 0, nullptr, statuses, code);
  };
  return complete(list(count, requests), look, code_of, &Runtime::Testall, count, requests, flag, statuses);
}

FARSIDE_ENTRY(Testany, (int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status),
              (count, requests, index, flag, status)) {
  const auto code_of = [&](const Handles& handles, int code) {
    return handles.of_one(*flag != 0 ? *index : MPI_UNDEFINED, code);
  };
  return complete(list(count, requests), look, code_of, &Runtime::Testany, count, requests, index, flag, status);
}

FARSIDE_ENTRY(Testsome, (int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses),
              (count, requests, completed, indices, statuses)) {
  const auto code_of = [&](const Handles& handles, int code) {
    return handles.of_many(*completed, indices, statuses, code);
  };
  return complete(list(count, requests), look, code_of, &Runtime::Testsome, count, requests, completed, indices,
                  statuses);
}

FARSIDE_ENTRY(Waitany, (int count, MPI_Request* requests, int* index, MPI_Status* status),
              (count, requests, index, status)) {
  if (!Requests::any()) [[likely]]
    return runtime().Waitany(count, requests, index, status);
  const auto test = [&](bool& over) {
    int flag = 0;
    const int code = runtime().Testany(count, requests, index, &flag, status);
    over = flag != 0;
    return code;
  };
  return wait_for_some(
      list(count, requests), test, [&] { return runtime().Waitany(count, requests, index, status); },
      [&](const Handles& handles, int code) { return handles.of_one(*index, code); });
}

FARSIDE_ENTRY(Waitsome, (int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses),
              (count, requests, completed, indices, statuses)) {
  if (!Requests::any()) [[likely]]
    return runtime().Waitsome(count, requests, completed, indices, statuses);
  const auto test = [&](bool& over) {
    const int code = runtime().Testsome(count, requests, completed, indices, statuses);
    over = *completed != 0;
    return code;
  };
  return wait_for_some(
      list(count, requests), test, [&] { return runtime().Waitsome(count, requests, completed, indices, statuses); },
      [&](const Handles& handles, int code) { return handles.of_many(*completed, indices, statuses, code); });
}

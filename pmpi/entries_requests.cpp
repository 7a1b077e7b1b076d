// SPDX-License-Identifier: BSD-3-Clause
// Entry points: completion of requests (MPI 4.0 section 3.7). While no operation with a request is under way, they are
// the runtime's; else those of farside among the requests are completed first, as far as their operations are over.
#include <algorithm>
#include <span>

#include "pmpi/entry.hpp"
#include "pmpi/requests.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

using Look = Requests::Look;

std::span<const MPI_Request> list(int count, const MPI_Request* requests) {
  return {requests, count > 0 && requests != nullptr ? static_cast<std::size_t>(count) : 0};
}

// What a call on one request returns, or a call that has completed one of several.
int of_one(const Look& look, int code) { return code == MPI_SUCCESS ? look.code : code; }

// Of several: who failed stands in the statuses (MPI 4.0 section 3.7.5).
int of_many(const Look& look, int code, std::span<MPI_Status> statuses, const int* indices) {
  if (look.failed.empty()) return code;
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    const std::size_t index = indices != nullptr ? static_cast<std::size_t>(indices[i]) : i;
    const bool failed = std::ranges::find(look.failed, index) != look.failed.end();
    if (failed) {
      statuses[i].MPI_ERROR = look.code;
    } else if (code == MPI_SUCCESS) {
      statuses[i].MPI_ERROR = MPI_SUCCESS;
    }
  }
  return MPI_ERR_IN_STATUS;
}

std::span<MPI_Status> statuses_of(MPI_Status* statuses, int count) {
  if (statuses == MPI_STATUSES_IGNORE || count <= 0) return {};
  return {statuses, static_cast<std::size_t>(count)};
}

// Waits for any of several requests: while some of them are farside's, by testing.
template <class Test, class Wait>
int wait_for_some(std::span<const MPI_Request> requests, Test&& test, Wait&& wait) {
  for (Waiter waiter(Process::instance(), Process::instance().own_bell());;) {
    const Look look = Requests::instance().look(requests);
    if (look.waiting == 0 && look.failed.empty()) return wait();
    bool over = false;
    const int code = test(look, over);
    if (code != MPI_SUCCESS || over) return code;
    waiter.pause();
  }
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

FARSIDE_ENTRY(Wait, (MPI_Request * request, MPI_Status* status)) {
  Requests& pending = Requests::instance();
  if (!pending.any()) [[likely]] return runtime().Wait(request, status);
  const Look look = pending.wait(list(1, request));
  return of_one(look, runtime().Wait(request, status));
}

FARSIDE_ENTRY(Test, (MPI_Request * request, int* flag, MPI_Status* status)) {
  Requests& pending = Requests::instance();
  if (!pending.any()) [[likely]] return runtime().Test(request, flag, status);
  const Look look = pending.look(list(1, request));
  return of_one(look, runtime().Test(request, flag, status));
}

FARSIDE_ENTRY(Request_get_status, (MPI_Request request, int* flag, MPI_Status* status)) {
  Requests& pending = Requests::instance();
  if (!pending.any()) [[likely]] return runtime().Request_get_status(request, flag, status);
  const Look look = pending.look(list(1, &request));
  return of_one(look, runtime().Request_get_status(request, flag, status));
}

FARSIDE_ENTRY(Request_free, (MPI_Request * request)) {
  Requests& pending = Requests::instance();
  if (pending.any() && request != nullptr) pending.give_up(*request);
  return runtime().Request_free(request);
}

FARSIDE_ENTRY(Waitall, (int count, MPI_Request* requests, MPI_Status* statuses)) {
  Requests& pending = Requests::instance();
  if (!pending.any()) [[likely]] return runtime().Waitall(count, requests, statuses);
  const Look look = pending.wait(list(count, requests));
  const int code = runtime().Waitall(count, requests, statuses);
  return of_many(look, code, statuses_of(statuses, count), nullptr);
}

FARSIDE_ENTRY(Testall, (int count, MPI_Request* requests, int* flag, MPI_Status* statuses)) {
  Requests& pending = Requests::instance();
  if (!pending.any()) [[likely]] return runtime().Testall(count, requests, flag, statuses);
  const Look look = pending.look(list(count, requests));
  const int code = runtime().Testall(count, requests, flag, statuses);
  return of_many(look, code, statuses_of(statuses, *flag != 0 ? count : 0), nullptr);
}

FARSIDE_ENTRY(Waitany, (int count, MPI_Request* requests, int* index, MPI_Status* status)) {
  if (!Requests::instance().any()) [[likely]] return runtime().Waitany(count, requests, index, status);
  const auto test = [&](const Look& look, bool& over) {
    int flag = 0;
    const int code = runtime().Testany(count, requests, index, &flag, status);
    over = flag != 0;
    return of_one(look, code);
  };
  return wait_for_some(list(count, requests), test, [&] { return runtime().Waitany(count, requests, index, status); });
}

FARSIDE_ENTRY(Testany, (int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status)) {
  Requests& pending = Requests::instance();
  if (!pending.any()) [[likely]] return runtime().Testany(count, requests, index, flag, status);
  const Look look = pending.look(list(count, requests));
  return of_one(look, runtime().Testany(count, requests, index, flag, status));
}

FARSIDE_ENTRY(Waitsome, (int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses)) {
  if (!Requests::instance().any()) [[likely]] return runtime().Waitsome(count, requests, completed, indices, statuses);
  const auto test = [&](const Look& look, bool& over) {
    const int code = runtime().Testsome(count, requests, completed, indices, statuses);
    over = *completed != 0;
    return of_many(look, code, statuses_of(statuses, *completed), indices);
  };
  return wait_for_some(list(count, requests), test,
                       [&] { return runtime().Waitsome(count, requests, completed, indices, statuses); });
}

FARSIDE_ENTRY(Testsome, (int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses)) {
  Requests& pending = Requests::instance();
  if (!pending.any()) [[likely]] return runtime().Testsome(count, requests, completed, indices, statuses);
  const Look look = pending.look(list(count, requests));
  const int code = runtime().Testsome(count, requests, completed, indices, statuses);
  return of_many(look, code, statuses_of(statuses, *completed), indices);
}

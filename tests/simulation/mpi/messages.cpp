// SPDX-License-Identifier: BSD-3-Clause
// Requests, point-to-point messages, and collective operations.
#include <algorithm>
#include <cstring>

#include "tests/simulation/mpi/objects.hpp"

namespace simulation::mpi {

namespace {

constexpr std::size_t kEager = 16 * 1024;  // longer messages wait for their receiver

Time latency() { return 200 + static_cast<Time>(scheduler->random().below(5 * kMicrosecond)); }

int call_query(Request& request, MPI_Status& status) {
  return request.query != nullptr ? request.query(request.extra, &status) : MPI_SUCCESS;
}

// Hands out the status of a complete request, and frees it.
int finish(MPI_Request& handle, MPI_Status* status) {
  Request& request = runtime.requests.at(handle);
  if (request.kind == Request::Kind::kGeneralized) {
    call_query(request, request.status);
    if (request.release != nullptr) request.release(request.extra);
  }
  const int code = request.status.MPI_ERROR;
  if (status != MPI_STATUS_IGNORE) {
    const int before = status->MPI_ERROR;
    *status = request.status;
    status->MPI_ERROR = before;
  }
  runtime.requests.erase(handle);
  handle = MPI_REQUEST_NULL;
  return code;
}

void set_empty(MPI_Status* status) {
  if (status == MPI_STATUS_IGNORE) return;
  *status = {};
  status->MPI_SOURCE = MPI_ANY_SOURCE;
  status->MPI_TAG = MPI_ANY_TAG;
}

bool matches(const Message& message, int context, int source, int tag) {
  return message.context == context && (source == MPI_ANY_SOURCE || source == message.source) &&
         (tag == MPI_ANY_TAG || tag == message.tag);
}

void set_count(MPI_Status& status, std::size_t bytes) {
  status.count_lo = static_cast<int>(bytes & 0xffffffff);
  status.count_hi_and_cancelled = static_cast<int>(bytes >> 32) << 1;
}

void receive(MPI_Request handle, const Message& message) {
  Request& request = runtime.requests.at(handle);
  const std::size_t taken =
      unpack(message.data.data(), message.data.size(), request.buffer, request.count, request.type);
  set_count(request.status, taken);
  request.status.MPI_SOURCE = message.source;
  request.status.MPI_TAG = message.tag;
  request.status.MPI_ERROR = taken < message.data.size() ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
  complete(handle);
  if (message.sender != MPI_REQUEST_NULL) complete(message.sender);
}

void arrive(int rank, Message message) {
  if (job.ranks[static_cast<std::size_t>(rank)].end != Rank::End::kNone) return;
  Process& receiver = runtime.processes[static_cast<std::size_t>(rank)];
  for (auto each = receiver.receives.begin(); each != receiver.receives.end(); ++each) {
    const Request& request = runtime.requests.at(*each);
    if (!matches(message, request.context, request.source, request.tag)) continue;
    const MPI_Request handle = *each;
    receiver.receives.erase(each);
    return receive(handle, message);
  }
  receiver.messages.push_back(std::move(message));
  scheduler->wake(key_of(&receiver));
}

MPI_Request send(const void* buffer, int count, MPI_Datatype type, int to, int tag, Comm& comm) {
  const MPI_Request handle = make_request(Request::Kind::kSend);
  if (to == MPI_PROC_NULL) return complete(handle), handle;
  Message message{comm.handle, comm.own_rank(), tag, pack(buffer, count, type)};
  if (message.data.size() > kEager)
    message.sender = handle;
  else
    complete(handle);
  const int rank = comm.ranks.at(static_cast<std::size_t>(to));
  // Messages between two ranks keep their order.
  Time& last = runtime.processes[static_cast<std::size_t>(rank)].last_arrival[current()->rank];
  last = std::max(last + 1, scheduler->now() + latency());
  scheduler->at(last, [rank, message = std::move(message)] { arrive(rank, message); });
  return handle;
}

MPI_Request post(void* buffer, int count, MPI_Datatype type, int from, int tag, Comm& comm) {
  const MPI_Request handle = make_request(Request::Kind::kReceive);
  Request& request = runtime.requests.at(handle);
  if (from == MPI_PROC_NULL) {
    request.status.MPI_SOURCE = MPI_PROC_NULL;
    request.status.MPI_TAG = MPI_ANY_TAG;
    complete(handle);
    return handle;
  }
  request.buffer = buffer;
  request.count = count;
  request.type = type;
  request.context = comm.handle;
  request.source = from;
  request.tag = tag;
  std::vector<Message>& messages = process().messages;
  const auto found =
      std::ranges::find_if(messages, [&](const Message& each) { return matches(each, comm.handle, from, tag); });
  if (found == messages.end()) {
    process().receives.push_back(handle);
    return handle;
  }
  const Message message = std::move(*found);
  messages.erase(found);
  receive(handle, message);
  return handle;
}

bool may_send(MPI_Datatype handle) {
  const Type* const type = find_type(handle);
  return type != nullptr && type->committed;
}

bool is_done(MPI_Request handle) { return handle == MPI_REQUEST_NULL || runtime.requests.at(handle).done; }

// Waits until one of them is complete; false if none ever will be.
bool wait_for_any(int count, MPI_Request* requests, int& index) {
  scheduler->yield();
  while (true) {
    bool any = false;
    std::vector<int> done;
    for (int i = 0; i < count; ++i) {
      if (requests[i] == MPI_REQUEST_NULL) continue;
      any = true;
      if (is_done(requests[i])) done.push_back(i);
    }
    if (!done.empty()) return index = done[scheduler->random().below(done.size())], true;
    if (!any) return false;
    scheduler->block(key_of(&process()), kNever, "waits for a request");
  }
}

// All have brought the same call.
void check_calls(const Contributions& all) {
  for (const Contribution& each : all)
    if (std::strcmp(each.call, all.front().call) != 0)
      host::fail(std::string("MPI: ranks differ in their collective calls: ") + each.call + ", " + all.front().call,
                 true);
}

Contribution contribution(const char* call, const void* send, int count, MPI_Datatype type, void* receive) {
  Contribution own;
  own.call = call;
  own.send = send;
  own.receive = receive;
  own.count = own.receive_count = count;
  own.type = own.receive_type = type;
  return own;
}

// The result of a reduction of all goes to all.
void allreduce(Contributions& all) {
  const auto input = [](const Contribution& each) { return each.send == MPI_IN_PLACE ? each.receive : each.send; };
  const Contribution& first = all.front();
  const auto bytes = static_cast<std::size_t>(first.count) * static_cast<std::size_t>(type_at(first.type).extent);
  std::vector<char> result(bytes);
  if (bytes != 0) std::memcpy(result.data(), input(first), bytes);
  for (std::size_t i = 1; i < all.size(); ++i) reduce(first.op, first.type, first.count, input(all[i]), result.data());
  for (const Contribution& each : all)
    if (each.receive != nullptr && bytes != 0) std::memcpy(each.receive, result.data(), bytes);
}

void broadcast(Contributions& all) {
  const Contribution& root = all[static_cast<std::size_t>(all.front().root)];
  const auto data = pack(root.receive, root.count, root.type);
  for (const Contribution& each : all) unpack(data.data(), data.size(), each.receive, each.count, each.type);
}

// The data of each rank go to all, in the order of ranks.
void allgather(Contributions& all) {
  std::vector<std::vector<char>> data;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Contribution& each = all[i];
    const auto own = static_cast<std::ptrdiff_t>(i) * each.receive_count * type_at(each.receive_type).extent;
    data.push_back(each.send == MPI_IN_PLACE
                       ? pack(static_cast<char*>(each.receive) + own, each.receive_count, each.receive_type)
                       : pack(each.send, each.count, each.type));
  }
  for (const Contribution& each : all) {
    if (each.receive == nullptr) continue;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i) * each.receive_count * type_at(each.receive_type).extent;
      unpack(data[i].data(), data[i].size(), static_cast<char*>(each.receive) + at, each.receive_count,
             each.receive_type);
    }
  }
}

int now(MPI_Comm comm, const Contribution& own, const std::function<void(Contributions&)>& execute) {
  MPI_Request request = join(comm_at(comm), own, execute);
  return wait(request, MPI_STATUS_IGNORE);
}

}  // namespace

MPI_Request make_request(Request::Kind kind) {
  auto request = std::make_unique<Request>();
  request->kind = kind;
  request->rank = current()->rank;
  return runtime.requests.add(std::move(request));
}

void complete(MPI_Request handle) {
  Request& request = runtime.requests.at(handle);
  request.done = true;
  scheduler->wake(key_of(&runtime.processes[static_cast<std::size_t>(request.rank)]));
  if (request.freed) runtime.requests.erase(handle);
}

int wait(MPI_Request& handle, MPI_Status* status) {
  int index = 0;
  if (!wait_for_any(1, &handle, index)) return set_empty(status), MPI_SUCCESS;
  return finish(handle, status);
}

MPI_Request join(Comm& comm, const Contribution& own, const std::function<void(Contributions&)>& execute,
                 const std::vector<int>& members, int tag) {
  const MPI_Request handle = make_request(Request::Kind::kCollective);
  Channel& channel = comm.channels[{members, tag}];
  const std::uint64_t number = channel.calls[current()->rank]++;
  Contributions& all = channel.meetings[number];
  all.push_back(own);
  all.back().rank = comm.own_rank();
  all.back().request = handle;
  if (all.size() < (members.empty() ? comm.ranks.size() : members.size())) return handle;
  check_calls(all);
  std::ranges::sort(all, {}, &Contribution::rank);
  execute(all);
  for (const Contribution& each : all)
    scheduler->at(scheduler->now() + latency(), [request = each.request] { complete(request); });
  channel.meetings.erase(number);
  return handle;
}

}  // namespace simulation::mpi

using namespace simulation;
using namespace simulation::mpi;

SIMULATED(Isend)
int PMPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  if (!may_send(type)) return raise(comm, MPI_ERR_TYPE, " in MPI_Isend");
  *request = send(buffer, count, type, to, tag, comm_at(comm));
  return MPI_SUCCESS;
}
SIMULATED(Irecv)
int PMPI_Irecv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  *request = post(buffer, count, type, from, tag, comm_at(comm));
  return MPI_SUCCESS;
}
SIMULATED(Send)
int PMPI_Send(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  if (!may_send(type)) return raise(comm, MPI_ERR_TYPE, " in MPI_Send");
  MPI_Request request = send(buffer, count, type, to, tag, comm_at(comm));
  return wait(request, MPI_STATUS_IGNORE);
}
SIMULATED(Recv)
int PMPI_Recv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  MPI_Request request = post(buffer, count, type, from, tag, comm_at(comm));
  return wait(request, status);
}
SIMULATED(Sendrecv)
int PMPI_Sendrecv(const void* sent, int sent_count, MPI_Datatype sent_type, int to, int sent_tag, void* received,
                  int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  MPI_Request receives = post(received, count, type, from, tag, comm_at(comm));
  MPI_Request sends = send(sent, sent_count, sent_type, to, sent_tag, comm_at(comm));
  wait(sends, MPI_STATUS_IGNORE);
  return wait(receives, status);
}
SIMULATED(Iprobe)
int PMPI_Iprobe(int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  scheduler->yield(true);
  const auto& messages = process().messages;
  const auto found = std::ranges::find_if(
      messages, [&](const Message& each) { return matches(each, comm_at(comm).handle, from, tag); });
  *flag = found != messages.end();
  if (*flag == 0 || status == MPI_STATUS_IGNORE) return MPI_SUCCESS;
  set_count(*status, found->data.size());
  status->MPI_SOURCE = found->source;
  status->MPI_TAG = found->tag;
  return MPI_SUCCESS;
}
SIMULATED(Get_count)
int PMPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count) {
  *count = status->count_lo / static_cast<int>(type_at(type).size);
  return MPI_SUCCESS;
}
SIMULATED(Status_set_elements)
int PMPI_Status_set_elements(MPI_Status* status, MPI_Datatype type, int count) {
  set_count(*status, type_at(type).size * static_cast<std::size_t>(count));
  return MPI_SUCCESS;
}
SIMULATED(Status_set_cancelled)
int PMPI_Status_set_cancelled(MPI_Status* status, int flag) {
  status->count_hi_and_cancelled = (status->count_hi_and_cancelled & ~1) | flag;
  return MPI_SUCCESS;
}

SIMULATED(Wait)
int PMPI_Wait(MPI_Request* request, MPI_Status* status) { return wait(*request, status); }
SIMULATED(Waitany)
int PMPI_Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  *index = MPI_UNDEFINED;
  if (!wait_for_any(count, requests, *index)) return set_empty(status), MPI_SUCCESS;
  return finish(requests[*index], status);
}
SIMULATED(Waitall)
int PMPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  int result = MPI_SUCCESS;
  for (int i = 0; i < count; ++i) {
    const bool ignored = statuses == MPI_STATUSES_IGNORE;
    const int code = wait(requests[i], ignored ? MPI_STATUS_IGNORE : &statuses[i]);
    if (!ignored) statuses[i].MPI_ERROR = code;
    if (code != MPI_SUCCESS) result = MPI_ERR_IN_STATUS;
  }
  return result;
}
SIMULATED(Waitsome)
int PMPI_Waitsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  int first = 0;
  *done = MPI_UNDEFINED;
  if (!wait_for_any(count, requests, first)) return MPI_SUCCESS;
  *done = 0;
  for (int i = 0; i < count; ++i) {
    if (requests[i] == MPI_REQUEST_NULL || !is_done(requests[i])) continue;
    finish(requests[i], statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[*done]);
    indices[(*done)++] = i;
  }
  return MPI_SUCCESS;
}
SIMULATED(Test)
int PMPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  scheduler->yield(true);
  *flag = is_done(*request);
  if (*flag == 0) return MPI_SUCCESS;
  if (*request == MPI_REQUEST_NULL) return set_empty(status), MPI_SUCCESS;
  return finish(*request, status);
}
SIMULATED(Testany)
int PMPI_Testany(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
  scheduler->yield(true);
  *index = MPI_UNDEFINED;
  *flag = 1;
  for (int i = 0; i < count; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    *flag = is_done(requests[i]);
    if (*flag == 0) continue;
    *index = i;
    return finish(requests[i], status);
  }
  if (*flag != 0) set_empty(status);
  return MPI_SUCCESS;
}
SIMULATED(Testall)
int PMPI_Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  scheduler->yield(true);
  *flag = std::all_of(requests, requests + count, is_done);
  return *flag != 0 ? PMPI_Waitall(count, requests, statuses) : MPI_SUCCESS;
}
SIMULATED(Testsome)
int PMPI_Testsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  scheduler->yield(true);
  const auto active = [](MPI_Request each) { return each != MPI_REQUEST_NULL; };
  const auto ready = [](MPI_Request each) { return each != MPI_REQUEST_NULL && is_done(each); };
  *done = std::any_of(requests, requests + count, active) ? 0 : MPI_UNDEFINED;
  return std::any_of(requests, requests + count, ready) ? PMPI_Waitsome(count, requests, done, indices, statuses)
                                                        : MPI_SUCCESS;
}
SIMULATED(Request_get_status)
int PMPI_Request_get_status(MPI_Request handle, int* flag, MPI_Status* status) {
  scheduler->yield();
  *flag = is_done(handle);
  if (*flag == 0) return MPI_SUCCESS;
  if (handle == MPI_REQUEST_NULL) return set_empty(status), MPI_SUCCESS;
  Request& request = runtime.requests.at(handle);
  if (request.kind == Request::Kind::kGeneralized) call_query(request, request.status);
  if (status != MPI_STATUS_IGNORE) *status = request.status;
  return MPI_SUCCESS;
}
SIMULATED(Request_free)
int PMPI_Request_free(MPI_Request* handle) {
  Request& request = runtime.requests.at(*handle);
  if (request.done)
    finish(*handle, MPI_STATUS_IGNORE);
  else
    request.freed = true;
  *handle = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}
SIMULATED(Grequest_start)
int PMPI_Grequest_start(MPI_Grequest_query_function* query, MPI_Grequest_free_function* release,
                        MPI_Grequest_cancel_function*, void* extra, MPI_Request* made) {
  *made = make_request(Request::Kind::kGeneralized);
  Request& request = runtime.requests.at(*made);
  request.query = query;
  request.release = release;
  request.extra = extra;
  return MPI_SUCCESS;
}
SIMULATED(Grequest_complete)
int PMPI_Grequest_complete(MPI_Request request) {
  complete(request);
  return MPI_SUCCESS;
}

SIMULATED(Barrier)
int PMPI_Barrier(MPI_Comm comm) {
  return now(comm, contribution("MPI_Barrier", nullptr, 0, MPI_BYTE, nullptr), [](Contributions&) {});
}
SIMULATED(Ibarrier)
int PMPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  *request = join(comm_at(comm), contribution("MPI_Ibarrier", nullptr, 0, MPI_BYTE, nullptr), [](Contributions&) {});
  return MPI_SUCCESS;
}
SIMULATED(Bcast)
int PMPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  Contribution own = contribution("MPI_Bcast", nullptr, count, type, buffer);
  own.root = root;
  return now(comm, own, broadcast);
}
SIMULATED(Ibcast)
int PMPI_Ibcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  Contribution own = contribution("MPI_Ibcast", nullptr, count, type, buffer);
  own.root = root;
  *request = join(comm_at(comm), own, broadcast);
  return MPI_SUCCESS;
}
SIMULATED(Allreduce)
int PMPI_Allreduce(const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  Contribution own = contribution("MPI_Allreduce", sent, count, type, received);
  own.op = op;
  return now(comm, own, allreduce);
}
SIMULATED(Iallreduce)
int PMPI_Iallreduce(const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                    MPI_Request* request) {
  Contribution own = contribution("MPI_Iallreduce", sent, count, type, received);
  own.op = op;
  *request = join(comm_at(comm), own, allreduce);
  return MPI_SUCCESS;
}
SIMULATED(Reduce)
int PMPI_Reduce(const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  Contribution own =
      contribution("MPI_Reduce", sent, count, type, comm_at(comm).own_rank() == root ? received : nullptr);
  own.op = op;
  return now(comm, own, allreduce);
}
SIMULATED(Allgather)
int PMPI_Allgather(const void* sent, int count, MPI_Datatype type, void* received, int received_count,
                   MPI_Datatype received_type, MPI_Comm comm) {
  Contribution own = contribution("MPI_Allgather", sent, count, type, received);
  own.receive_count = received_count;
  own.receive_type = received_type;
  return now(comm, own, allgather);
}
SIMULATED(Gather)
int PMPI_Gather(const void* sent, int count, MPI_Datatype type, void* received, int received_count,
                MPI_Datatype received_type, int root, MPI_Comm comm) {
  Contribution own =
      contribution("MPI_Gather", sent, count, type, comm_at(comm).own_rank() == root ? received : nullptr);
  own.receive_count = received_count;
  own.receive_type = received_type;
  return now(comm, own, allgather);
}

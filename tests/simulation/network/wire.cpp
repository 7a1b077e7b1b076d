// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "tests/simulation/network/objects.hpp"

namespace simulation::network {

namespace {

constexpr std::uint64_t kKinds = FI_SEND | FI_MSG | FI_RMA | FI_WRITE | FI_READ;
constexpr std::size_t kWrittenTogether = 4096;
constexpr std::size_t kMostOperations = 64;  // of an endpoint; then FI_EAGAIN

std::vector<char> gather(const std::vector<iovec>& parts) {
  std::vector<char> data;
  for (const iovec& part : parts) {
    const auto* const from = static_cast<const char*>(part.iov_base);
    data.insert(data.end(), from, from + part.iov_len);
  }
  return data;
}

char* memory_at(Endpoint& endpoint, const fi_rma_iov& place) {
  const auto found = endpoint.domain->regions.find(place.key);
  if (found == endpoint.domain->regions.end())
    host::fail("network: a peer accesses memory that is not registered: " + std::to_string(place.len) + " bytes, key " +
                   std::to_string(place.key),
               true);
  const Region& region = *found->second;
  if (place.addr > region.bytes || place.len > region.bytes - place.addr)
    host::fail("network: a peer accesses memory beyond a registration", true);
  return region.base + place.addr;
}

void finish(Endpoint& endpoint, std::uint64_t number, int error) {
  const auto found = endpoint.operations.find(number);
  if (found == endpoint.operations.end()) return;
  const Operation operation = std::move(found->second);
  endpoint.operations.erase(found);
  if ((operation.flags & FI_COMPLETION) != 0 || (error != 0 && operation.context != nullptr))
    endpoint.queue->add(operation.context, operation.flags & kKinds, 0, error);
}

void send(std::uint64_t id, std::uint64_t number) {
  Endpoint* const endpoint = find_endpoint(id);
  if (endpoint == nullptr) return;
  const auto found = endpoint->operations.find(number);
  if (found == endpoint->operations.end()) return;
  Operation& operation = found->second;
  if (operation.packet.kind != Packet::Kind::kRead && (operation.flags & FI_INJECT) == 0)
    operation.packet.data = gather(operation.local);
  operation.sent = true;
  const bool answered = operation.packet.operation != 0;
  transmit(*endpoint, std::move(operation.packet));
  if (!answered) finish(*endpoint, number, 0);
}

// When the endpoint sends next: some time later, behind what it has to send already.
Time next_sending(Endpoint& endpoint) {
  Random& random = scheduler->random();
  Time wait = 100 + static_cast<Time>(random.below(2 * kMicrosecond));
  if (random.one_in(network().full_sockets)) wait += static_cast<Time>(random.below(200 * kMicrosecond));
  return endpoint.last_sent = std::max(endpoint.last_sent + 1, scheduler->now() + wait);
}

// Sends an answer. As by libfabric's provider, the data of a read are read when it is sent.
void answer(Endpoint& endpoint, Packet request) {
  scheduler->at(next_sending(endpoint), [id = endpoint.id, request = std::move(request)] {
    Endpoint* const from = find_endpoint(id);
    if (from == nullptr || from->ended) return;
    Packet answer{Packet::Kind::kAnswer, {}, {}, request.operation};
    if (request.kind == Packet::Kind::kRead) {
      for (const fi_rma_iov& place : request.places) {
        const char* const data = memory_at(*from, place);
        answer.data.insert(answer.data.end(), data, data + place.len);
      }
    }
    transmit(*from, std::move(answer));
  });
}

void list(Endpoint& endpoint) {
  if (!std::exchange(endpoint.listed, true)) endpoint.queue->arrivals.push_back(endpoint.id);
}

// Returns false if it has to wait.
bool handle(Endpoint& endpoint, Packet& packet) {
  switch (packet.kind) {
    case Packet::Kind::kMessage: {
      if (endpoint.receives->posted.empty()) return false;
      const Receive receive = endpoint.receives->posted.front();
      endpoint.receives->posted.pop_front();
      const std::size_t taken = std::min(packet.data.size(), receive.bytes);
      std::memcpy(receive.buffer, packet.data.data(), taken);
      endpoint.queue->add(receive.context, FI_RECV | FI_MSG, taken, taken < packet.data.size() ? FI_ETRUNC : 0);
      return true;
    }
    case Packet::Kind::kWrite: {
      const char* from = packet.data.data();
      for (const fi_rma_iov& place : packet.places) {
        if (place.len == 0) continue;
        char* const to = memory_at(endpoint, place);
        for (std::size_t done = 0; done < place.len; done += kWrittenTogether) {
          std::memcpy(to + done, from + done, std::min(kWrittenTogether, place.len - done));
          scheduler->yield();  // another thread may read the first parts
        }
        from += place.len;
      }
      if (packet.operation != 0) answer(endpoint, {Packet::Kind::kWrite, {}, {}, packet.operation});
      return true;
    }
    case Packet::Kind::kRead: answer(endpoint, std::move(packet)); return true;
    case Packet::Kind::kAnswer: {
      const auto found = endpoint.operations.find(packet.operation);
      if (found == endpoint.operations.end()) return true;
      const char* from = packet.data.data();
      if (!packet.data.empty()) {
        for (const iovec& part : found->second.local) {
          std::memcpy(part.iov_base, from, part.iov_len);
          from += part.iov_len;
        }
      }
      finish(endpoint, packet.operation, 0);
      return true;
    }
    case Packet::Kind::kEnd: end(endpoint); return true;
  }
  return true;
}

}  // namespace

Signal::Signal() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
Signal::~Signal() { close(fd_); }
void Signal::clear() {
  eventfd_t count = 0;
  (void)eventfd_read(fd_, &count);
}

Network& network() {
  static Network all = [] {
    constexpr Time kLatencies[] = {1 * kMicrosecond, 20 * kMicrosecond, 300 * kMicrosecond};
    constexpr std::uint64_t kFull[] = {16, 256, UINT64_MAX}, kFullSockets[] = {4, 32};
    Network made;
    made.offer = static_cast<Offer>(scheduler->random().below(2));
    made.latency = kLatencies[scheduler->random().below(3)];
    made.full = kFull[scheduler->random().below(3)];
    made.full_sockets = kFullSockets[scheduler->random().below(2)];
    return made;
  }();
  return all;
}

Time arrival(int from, int to, std::size_t bytes) {
  Random& random = scheduler->random();
  Time time = network().latency / 2 + static_cast<Time>(random.below(static_cast<std::uint64_t>(network().latency)));
  if (random.one_in(1000)) time *= 50;  // a packet was lost, and is sent again
  time += scheduler->now() + static_cast<Time>(bytes / 10);
  const int nodes[] = {job.ranks[static_cast<std::size_t>(from)].node, job.ranks[static_cast<std::size_t>(to)].node};
  for (const int node : nodes) {
    const auto silence = network().silences.find(node);
    if (nodes[0] == nodes[1] || silence == network().silences.end() || silence->second.until <= scheduler->now())
      continue;
    if (silence->second.until == kNever) return kNever;
    time = std::max(time, silence->second.until + static_cast<Time>(random.below(400'000 * kMicrosecond)));
  }
  return time;
}

Endpoint* find_endpoint(std::uint64_t id) {
  const auto found = network().endpoints.find(id);
  return found != network().endpoints.end() ? found->second : nullptr;
}

void CompletionQueue::add(void* context, std::uint64_t flags, std::size_t bytes, int error) {
  fi_cq_err_entry made{};
  made.op_context = context;
  made.flags = flags;
  made.len = bytes;
  made.err = error;
  completions.push_back(made);
  signal.set();
}

void EventQueue::add(Event event) {
  events.push_back(std::move(event));
  signal.set();
}

void transmit(Endpoint& from, Packet packet) {
  if (from.peer == 0) return;
  ++network().packets;
  const Time arrival = network::arrival(from.rank, from.peer_rank, packet.data.size());
  if (arrival == kNever) return;
  from.last_arrival = std::max({from.last_arrival + 1, from.connected, arrival});
  scheduler->at(from.last_arrival, [to = from.peer, packet = std::move(packet)]() mutable {
    Endpoint* const receiver = find_endpoint(to);
    if (receiver == nullptr || receiver->ended) return;
    receiver->arrived.push_back(std::move(packet));
    list(*receiver);
    receiver->queue->signal.set();
  });
}

ssize_t issue(Endpoint& endpoint, Operation operation) {
  scheduler->yield();
  if (endpoint.ended || endpoint.peer == 0) return -FI_ENOTCONN;
  if (endpoint.operations.size() >= kMostOperations || scheduler->random().one_in(network().full)) return -FI_EAGAIN;
  const std::uint64_t number = ++network().numbers;
  if ((operation.flags & FI_INJECT) != 0) operation.packet.data = gather(operation.local);
  const bool answered = operation.packet.kind == Packet::Kind::kRead || (operation.flags & FI_DELIVERY_COMPLETE) != 0;
  if (answered) operation.packet.operation = number;
  endpoint.operations.emplace(number, std::move(operation));
  scheduler->at(next_sending(endpoint), [id = endpoint.id, number] { send(id, number); });
  return 0;
}

void progress(CompletionQueue& queue) {
  if (queue.arrivals.empty() || std::exchange(queue.polled, true)) return;
  const auto ids = std::exchange(queue.arrivals, {});
  const std::size_t first = scheduler->random().below(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t id = ids[(first + i) % ids.size()];
    if (Endpoint* const endpoint = find_endpoint(id)) endpoint->listed = false;
    while (true) {
      Endpoint* const endpoint = find_endpoint(id);  // each packet may end it
      if (endpoint == nullptr || endpoint->ended || endpoint->arrived.empty()) break;
      Packet packet = std::move(endpoint->arrived.front());
      endpoint->arrived.pop_front();
      if (handle(*endpoint, packet)) continue;
      endpoint->arrived.push_front(std::move(packet));
      list(*endpoint);
      break;
    }
  }
  queue.polled = false;
}

bool anything_arrived(const CompletionQueue& queue) {
  return std::ranges::any_of(queue.arrivals, [](std::uint64_t id) {
    const Endpoint* const endpoint = find_endpoint(id);
    return endpoint != nullptr && !endpoint->arrived.empty() &&
           (endpoint->arrived.front().kind != Packet::Kind::kMessage || !endpoint->receives->posted.empty());
  });
}

void end(Endpoint& endpoint) {
  if (std::exchange(endpoint.ended, true)) return;
  endpoint.arrived.clear();
  while (!endpoint.operations.empty()) finish(endpoint, endpoint.operations.begin()->first, FI_ECANCELED);
  endpoint.events->add({FI_SHUTDOWN, &endpoint.fid.fid});
}

bool fail_one(Endpoint& endpoint) {
  const auto found = std::ranges::find_if(
      endpoint.operations, [](const auto& each) { return each.second.sent && each.second.context != nullptr; });
  if (found == endpoint.operations.end()) return false;
  finish(endpoint, found->first, FI_EIO);
  return true;
}

void die(int rank) {
  std::erase_if(network().listeners, [rank](const auto& each) { return each.second->rank == rank; });
  std::vector<Endpoint*> own;
  for (const auto& [id, endpoint] : network().endpoints)
    if (endpoint->rank == rank) own.push_back(endpoint);
  for (Endpoint* const each : own) {
    transmit(*each, {Packet::Kind::kEnd});
    network().endpoints.erase(each->id);
    if (Endpoint* const requester = find_endpoint(each->peer)) requester->asked = false;
  }
  if (network().silences[job.ranks[static_cast<std::size_t>(rank)].node].until == kNever) return;
  for (const auto& [id, endpoint] : network().endpoints)
    if (endpoint->peer_rank == rank && std::exchange(endpoint->asked, false))
      endpoint->events->add({0, &endpoint->fid.fid, nullptr, {}, FI_ECONNREFUSED});
}

void break_connection(Endpoint& endpoint) {
  const std::uint64_t peer = endpoint.peer;
  end(endpoint);
  scheduler->at(scheduler->now() + static_cast<Time>(scheduler->random().below(kSecond / 100)), [peer] {
    if (Endpoint* const other = find_endpoint(peer)) end(*other);
  });
}

}  // namespace simulation::network

// SPDX-License-Identifier: BSD-3-Clause
// libfabric's functions and tables of functions, for the objects of the simulated network.
#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <netinet/in.h>

#include "tests/simulation/faults.hpp"
#include "tests/simulation/network/objects.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside {

// Libfabric is here from the start.
void start_libfabric_between_nodes() {}

// transport/fabric/sockets.cpp. An endpoint's number is that of its socket.
std::vector<int> find_tcp_sockets(std::span<const TcpEnds> connections) {
  std::vector<int> found;
  for (const TcpEnds& each : connections) found.push_back(each.here.port);
  return found;
}
std::optional<TcpState> tcp_state(int socket, const TcpEnds&) {
  using namespace simulation;
  const network::Endpoint* const endpoint = network::find_endpoint(static_cast<std::uint64_t>(socket));
  if (endpoint == nullptr || endpoint->ended) return {};
  TcpState state;
  const auto node_of = [](int rank) { return job.ranks[static_cast<std::size_t>(rank)].node; };
  const int nodes[] = {node_of(endpoint->rank), node_of(endpoint->peer_rank)};
  for (const int node : nodes) {
    const network::Silence& silence = network::network().silences[node];
    if (nodes[0] == nodes[1] || silence.until <= scheduler->now()) continue;  // as arrival()
    const Time lasts = scheduler->now() - silence.since;
    state.silent = std::max(state.silent, std::chrono::milliseconds(lasts / 1'000'000));
    state.unanswered = state.unanswered || (lasts > 300'000 * kMicrosecond && endpoint->last_sent > silence.since);
  }
  return state;
}
int end_tcp_connection(const TcpEnds&) { return -1; }

}  // namespace farside

namespace simulation::network {

namespace {

// The object of the simulation that begins with libfabric's.
template <class T, class Fid>
T& object(Fid* fid) {
  return *reinterpret_cast<T*>(fid);
}

template <class T>
int close_as(fid* fid) {
  delete &object<T>(fid);
  return 0;
}

template <class T>
fi_ops operations_of(int (*close)(fid*) = close_as<T>) {
  fi_ops made{};
  made.size = sizeof made;
  made.close = close;
  return made;
}

// ---- queues ----

int queue_control(fid* fid, int command, void* argument) {
  if (command != FI_GETWAIT) return -FI_ENOSYS;
  *static_cast<int*>(argument) =
      fid->fclass == FI_CLASS_CQ ? object<CompletionQueue>(fid).signal.fd() : object<EventQueue>(fid).signal.fd();
  return 0;
}

ssize_t read_completions(fid_cq* fid, void* buffer, std::size_t room) {
  scheduler->yield();
  auto& queue = object<CompletionQueue>(fid);
  progress(queue);
  auto* entries = static_cast<fi_cq_msg_entry*>(buffer);
  std::size_t count = 0;
  for (; count < room && !queue.completions.empty() && queue.completions.front().err == 0; ++count) {
    const fi_cq_err_entry& first = queue.completions.front();
    entries[count] = {first.op_context, first.flags, first.len};
    queue.completions.pop_front();
  }
  if (count > 0) return static_cast<ssize_t>(count);
  return queue.completions.empty() || room == 0 ? -FI_EAGAIN : -FI_EAVAIL;
}

ssize_t read_completion_error(fid_cq* fid, fi_cq_err_entry* entry, std::uint64_t) {
  auto& queue = object<CompletionQueue>(fid);
  if (queue.completions.empty() || queue.completions.front().err == 0) return -FI_EAGAIN;
  *entry = queue.completions.front();
  queue.completions.pop_front();
  return 1;
}

const char* completion_text(fid_cq*, int, const void*, char*, std::size_t) { return "simulated"; }

int open_completions(fid_domain*, fi_cq_attr*, fid_cq** made, void* context) {
  static fi_ops operations = operations_of<CompletionQueue>();
  operations.control = queue_control;
  static fi_ops_cq calls{};
  calls = {sizeof calls, read_completions, nullptr, read_completion_error, nullptr, nullptr, nullptr, completion_text};
  auto queue = std::make_unique<CompletionQueue>();
  queue->fid = {{FI_CLASS_CQ, context, &operations}, &calls};
  *made = &queue.release()->fid;
  return 0;
}

ssize_t read_event(fid_eq* fid, std::uint32_t* event, void* buffer, std::size_t room, std::uint64_t) {
  scheduler->yield();
  auto& queue = object<EventQueue>(fid);
  if (queue.events.empty()) return -FI_EAGAIN;
  if (queue.events.front().error != 0) return -FI_EAVAIL;
  const Event first = std::move(queue.events.front());
  queue.events.pop_front();
  *event = first.event;
  const std::size_t data = std::min(first.data.size(), room - sizeof(fi_eq_cm_entry));
  auto* const entry = static_cast<fi_eq_cm_entry*>(buffer);
  entry->fid = first.fid;
  entry->info = first.info;
  std::memcpy(entry->data, first.data.data(), data);
  return static_cast<ssize_t>(sizeof *entry + data);
}

ssize_t read_event_error(fid_eq* fid, fi_eq_err_entry* entry, std::uint64_t) {
  auto& queue = object<EventQueue>(fid);
  if (queue.events.empty() || queue.events.front().error == 0) return -FI_EAGAIN;
  *entry = {};
  entry->fid = queue.events.front().fid;
  entry->err = queue.events.front().error;
  queue.events.pop_front();
  return sizeof *entry;
}

int open_events(fid_fabric*, fi_eq_attr*, fid_eq** made, void* context) {
  static fi_ops operations = operations_of<EventQueue>();
  operations.control = queue_control;
  static fi_ops_eq calls{};
  calls = {sizeof calls, read_event, read_event_error, nullptr, nullptr, nullptr};
  auto queue = std::make_unique<EventQueue>();
  queue->fid = {{FI_CLASS_EQ, context, &operations}, &calls};
  *made = &queue.release()->fid;
  return 0;
}

int try_wait(fid_fabric*, fid** fids, int count) {
  for (int i = 0; i < count; ++i) {
    if (fids[i]->fclass == FI_CLASS_CQ) {
      auto& queue = object<CompletionQueue>(fids[i]);
      progress(queue);
      queue.signal.clear();
      if (!queue.completions.empty() || anything_arrived(queue)) return -FI_EAGAIN;
    } else {
      auto& queue = object<EventQueue>(fids[i]);
      queue.signal.clear();
      if (!queue.events.empty()) return -FI_EAGAIN;
    }
  }
  return 0;
}

// ---- endpoints ----

Endpoint& endpoint_of(fid_ep* fid) { return object<Endpoint>(fid); }

int bind_endpoint(fid* fid, struct fid* other, std::uint64_t) {
  auto& endpoint = object<Endpoint>(fid);
  switch (other->fclass) {
    case FI_CLASS_EQ: endpoint.events = &object<EventQueue>(other); return 0;
    case FI_CLASS_CQ: endpoint.queue = &object<CompletionQueue>(other); return 0;
    case FI_CLASS_SRX_CTX: endpoint.receives = &object<Receives>(other); return 0;
    default: return -FI_EINVAL;
  }
}

int control_endpoint(fid*, int command, void*) { return command == FI_ENABLE ? 0 : -FI_ENOSYS; }

int shut_down(fid_ep* fid, std::uint64_t) {
  Endpoint& endpoint = endpoint_of(fid);
  if (endpoint.ended) return 0;
  transmit(endpoint, {Packet::Kind::kEnd});
  end(endpoint);
  return 0;
}

int close_endpoint(fid* fid) {
  auto& endpoint = object<Endpoint>(fid);
  if (endpoint.peer != 0) shut_down(&endpoint.fid, 0);
  network().endpoints.erase(endpoint.id);
  if (endpoint.queue != nullptr) std::erase(endpoint.queue->arrivals, endpoint.id);
  if (endpoint.events != nullptr)
    std::erase_if(endpoint.events->events, [fid](const Event& each) { return each.fid == fid; });
  delete &endpoint;
  return 0;
}

int connect(fid_ep* fid, const void* address, const void* data, std::size_t bytes) {
  scheduler->yield();
  Endpoint& endpoint = endpoint_of(fid);
  const auto* const to = static_cast<const sockaddr_in*>(address);
  endpoint.peer_rank = static_cast<int>(ntohl(to->sin_addr.s_addr) & 0xffff);
  const auto* const first = static_cast<const char*>(data);
  const Time time = arrival(endpoint.rank, endpoint.peer_rank, bytes);
  if (time == kNever) return 0;
  scheduler->at(time, [id = endpoint.id, port = to->sin_port, text = std::vector(first, first + bytes)] {
    Endpoint* const requester = find_endpoint(id);
    if (requester == nullptr) return;
    const auto found = network().listeners.find(port);
    const auto refusal = network().refusals.find(job.ranks[static_cast<std::size_t>(requester->peer_rank)].node);
    const bool refuses = refusal != network().refusals.end() && refusal->second > scheduler->now();
    if (refuses) faults::meet(requester->rank, requester->peer_rank);
    if (refuses || found == network().listeners.end())
      return requester->events->add({0, &requester->fid.fid, nullptr, {}, FI_ECONNREFUSED});
    requester->asked = true;
    fi_info* const info = fi_allocinfo();
    auto* const request = new Connector{{FI_CLASS_CONNREQ, nullptr, nullptr}, id};
    info->handle = &request->fid;
    found->second->events->add({FI_CONNREQ, &found->second->fid.fid, info, text});
  });
  return 0;
}

// Tells the requester, unless it has given up.
void answer_request(std::uint64_t requester, std::uint64_t acceptor, Time time, std::vector<char> data) {
  if (time == kNever) return;
  scheduler->at(time, [=] {
    Endpoint* const endpoint = find_endpoint(requester);
    if (endpoint == nullptr || endpoint->ended) {
      if (Endpoint* const other = find_endpoint(acceptor)) end(*other);
      return;
    }
    endpoint->asked = false;
    if (acceptor == 0) return endpoint->events->add({0, &endpoint->fid.fid, nullptr, {}, FI_ECONNREFUSED});
    endpoint->peer = acceptor;
    endpoint->events->add({FI_CONNECTED, &endpoint->fid.fid, nullptr, data});
  });
}

int accept(fid_ep* fid, const void* data, std::size_t bytes) {
  scheduler->yield();
  Endpoint& endpoint = endpoint_of(fid);
  const auto* const first = static_cast<const char*>(data);
  endpoint.peer = endpoint.requester;
  endpoint.last_arrival = arrival(endpoint.rank, endpoint.peer_rank, bytes);
  endpoint.connected = endpoint.last_arrival + 1;
  answer_request(endpoint.requester, endpoint.id, endpoint.last_arrival, {first, first + bytes});
  endpoint.events->add({FI_CONNECTED, &endpoint.fid.fid});
  return 0;
}

int reject(fid_pep* fid, fid_t handle, const void*, std::size_t) {
  const auto& request = object<Connector>(handle);
  const Endpoint* const requester = find_endpoint(request.endpoint);
  if (requester == nullptr) return 0;
  answer_request(request.endpoint, 0, arrival(object<Listener>(fid).rank, requester->rank, 0), {});
  return 0;
}

// The address has the rank; that of an endpoint its number in place of a port.
int write_name(int rank, std::uint64_t port, void* address, std::size_t* bytes) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(0x0a000000U + static_cast<unsigned>(rank));
  name.sin_port = static_cast<std::uint16_t>(port);
  std::memcpy(address, &name, std::min(*bytes, sizeof name));
  *bytes = sizeof name;
  return 0;
}
int name_of(fid_t fid, void* address, std::size_t* bytes) {
  const auto& endpoint = object<Endpoint>(fid);
  return write_name(endpoint.rank, endpoint.id, address, bytes);
}
int name_of_peer(fid_ep* fid, void* address, std::size_t* bytes) {
  const Endpoint& endpoint = endpoint_of(fid);
  return endpoint.peer == 0 ? -FI_ENOTCONN : write_name(endpoint.peer_rank, endpoint.peer, address, bytes);
}

ssize_t receive(fid_ep* fid, void* buffer, std::size_t bytes, void*, fi_addr_t, void* context) {
  auto& receives = object<Receives>(fid);
  if (receives.posted.size() >= receives.most) return -FI_EAGAIN;
  receives.posted.push_back({buffer, bytes, context});
  return 0;
}

ssize_t send_message(fid_ep* fid, const fi_msg* message, std::uint64_t flags) {
  return issue(endpoint_of(fid), {{Packet::Kind::kMessage},
                                  {message->msg_iov, message->msg_iov + message->iov_count},
                                  message->context,
                                  flags | FI_SEND | FI_MSG});
}

Operation rma(Packet::Kind kind, const fi_msg_rma& message, std::uint64_t flags) {
  return {{kind, {}, {message.rma_iov, message.rma_iov + message.rma_iov_count}},
          {message.msg_iov, message.msg_iov + message.iov_count},
          message.context,
          flags | FI_RMA};
}

ssize_t write(fid_ep* fid, const fi_msg_rma* message, std::uint64_t flags) {
  return issue(endpoint_of(fid), rma(Packet::Kind::kWrite, *message, flags | FI_WRITE));
}
ssize_t read(fid_ep* fid, const fi_msg_rma* message, std::uint64_t flags) {
  return issue(endpoint_of(fid), rma(Packet::Kind::kRead, *message, flags | FI_READ));
}
ssize_t inject(fid_ep* fid, const void* buffer, std::size_t bytes, fi_addr_t, std::uint64_t address,
               std::uint64_t key) {
  const iovec local{const_cast<void*>(buffer), bytes};
  const fi_rma_iov place{address, bytes, key};
  const fi_msg_rma message{&local, nullptr, 1, FI_ADDR_UNSPEC, &place, 1, nullptr, 0};
  return write(fid, &message, FI_INJECT);
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** made, void* context) {
  if (lacks_files()) return -FI_EMFILE;
  static fi_ops operations = operations_of<Endpoint>(close_endpoint);
  operations.bind = bind_endpoint;
  operations.control = control_endpoint;
  static fi_ops_cm connections{};
  connections = {sizeof connections, nullptr, name_of, name_of_peer, connect, nullptr, accept, nullptr,
                 shut_down,          nullptr};
  static fi_ops_msg messages{};
  messages.size = sizeof messages;
  messages.sendmsg = send_message;
  static fi_ops_rma accesses{};
  accesses.size = sizeof accesses;
  accesses.readmsg = read;
  accesses.writemsg = write;
  accesses.inject = inject;
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->fid.fid = {FI_CLASS_EP, context, &operations};
  endpoint->fid.cm = &connections;
  endpoint->fid.msg = &messages;
  endpoint->fid.rma = &accesses;
  endpoint->id = ++network().connections;
  endpoint->domain = &object<Domain>(domain);
  endpoint->rank = this_rank().index;
  if (info->handle != nullptr) {
    endpoint->requester = object<Connector>(info->handle).endpoint;
    const Endpoint* const requester = find_endpoint(endpoint->requester);
    endpoint->peer_rank = requester != nullptr ? requester->rank : endpoint->rank;
  }
  network().endpoints[endpoint->id] = endpoint.get();
  *made = &endpoint.release()->fid;
  return 0;
}

int open_receives(fid_domain*, fi_rx_attr* attributes, fid_ep** made, void* context) {
  static fi_ops operations = operations_of<Receives>();
  static fi_ops_msg messages{};
  messages.size = sizeof messages;
  messages.recv = receive;
  auto receives = std::make_unique<Receives>();
  receives->fid.fid = {FI_CLASS_SRX_CTX, context, &operations};
  receives->fid.msg = &messages;
  receives->most = attributes->size;
  *made = &receives.release()->fid;
  return 0;
}

// ---- listeners ----

int bind_listener(fid* fid, struct fid* events, std::uint64_t) {
  object<Listener>(fid).events = &object<EventQueue>(events);
  return 0;
}
int listen(fid_pep* fid) {
  auto& listener = object<Listener>(fid);
  network().listeners[listener.port] = &listener;
  return 0;
}
int close_listener(fid* fid) {
  network().listeners.erase(object<Listener>(fid).port);
  return close_as<Listener>(fid);
}
int listener_name(fid_t fid, void* address, std::size_t* bytes) {
  const auto& listener = object<Listener>(fid);
  return write_name(listener.rank, listener.port, address, bytes);
}

int open_listener(fid_fabric*, fi_info*, fid_pep** made, void* context) {
  static fi_ops operations = operations_of<Listener>(close_listener);
  operations.bind = bind_listener;
  static fi_ops_cm connections{};
  connections = {
      sizeof connections, nullptr, listener_name, nullptr, nullptr, listen, nullptr, reject, nullptr, nullptr};
  static std::uint16_t ports = 1000;
  auto listener = std::make_unique<Listener>();
  listener->fid.fid = {FI_CLASS_PEP, context, &operations};
  listener->fid.cm = &connections;
  listener->port = ++ports;
  listener->rank = this_rank().index;
  *made = &listener.release()->fid;
  return 0;
}

// ---- memory and domains ----

int close_region(fid* fid) {
  auto& region = object<Region>(fid);
  region.domain->regions.erase(region.fid.key);
  delete &region;
  return 0;
}

int register_memory(fid* domain, const void* base, std::size_t bytes, std::uint64_t, std::uint64_t, std::uint64_t key,
                    std::uint64_t, fid_mr** made, void* context) {
  static fi_ops operations = operations_of<Region>(close_region);
  if (lacks_memory()) return -FI_ENOMEM;
  auto region = std::make_unique<Region>();
  region->domain = &object<Domain>(domain);
  region->base = static_cast<char*>(const_cast<void*>(base));
  region->bytes = bytes;
  region->fid = {{FI_CLASS_MR, context, &operations}, nullptr, key};
  if (!region->domain->regions.emplace(key, region.get()).second) return -FI_ENOKEY;
  *made = &region.release()->fid;
  return 0;
}

int query_atomic(fid_domain*, fi_datatype, fi_op, fi_atomic_attr*, std::uint64_t) { return -FI_EOPNOTSUPP; }

int open_domain(fid_fabric*, fi_info*, fid_domain** made, void* context) {
  static fi_ops operations = operations_of<Domain>();
  static fi_ops_domain calls{};
  calls.size = sizeof calls;
  calls.cq_open = open_completions;
  calls.endpoint = open_endpoint;
  calls.srx_ctx = open_receives;
  calls.query_atomic = query_atomic;
  static fi_ops_mr memory{};
  memory.size = sizeof memory;
  memory.reg = register_memory;
  auto domain = std::make_unique<Domain>();
  domain->fid = {{FI_CLASS_DOMAIN, context, &operations}, &calls, &memory};
  *made = &domain.release()->fid;
  return 0;
}

template <class T>
T* copy_of(const T* from) {
  auto* const made = static_cast<T*>(std::calloc(1, sizeof(T)));
  if (from != nullptr) *made = *from;
  return made;
}

char* copy_of_text(const char* text) { return text != nullptr ? strdup(text) : nullptr; }

void* copy_of_bytes(const void* from, std::size_t bytes) {
  return from != nullptr ? std::memcpy(std::malloc(bytes), from, bytes) : nullptr;
}

}  // namespace

}  // namespace simulation::network

using namespace simulation;
using namespace simulation::network;

extern "C" {

fi_info* fi_dupinfo(const fi_info* from) {
  static const fi_info kEmpty{};
  const fi_info& old = from != nullptr ? *from : kEmpty;
  fi_info* const made = copy_of(&old);
  made->next = nullptr;
  made->tx_attr = copy_of(old.tx_attr);
  made->rx_attr = copy_of(old.rx_attr);
  made->ep_attr = copy_of(old.ep_attr);
  made->domain_attr = copy_of(old.domain_attr);
  made->domain_attr->name = copy_of_text(made->domain_attr->name);
  made->fabric_attr = copy_of(old.fabric_attr);
  made->fabric_attr->name = copy_of_text(made->fabric_attr->name);
  made->fabric_attr->prov_name = copy_of_text(made->fabric_attr->prov_name);
  made->src_addr = copy_of_bytes(old.src_addr, old.src_addrlen);
  made->dest_addr = copy_of_bytes(old.dest_addr, old.dest_addrlen);
  return made;
}

void fi_freeinfo(fi_info* info) {
  while (info != nullptr) {
    std::free(info->domain_attr->name);
    std::free(info->fabric_attr->name);
    std::free(info->fabric_attr->prov_name);
    for (void* part : {static_cast<void*>(info->tx_attr), static_cast<void*>(info->rx_attr),
                       static_cast<void*>(info->ep_attr), static_cast<void*>(info->domain_attr),
                       static_cast<void*>(info->fabric_attr), info->src_addr, info->dest_addr})
      std::free(part);
    std::free(std::exchange(info, info->next));
  }
}

int fi_getinfo(std::uint32_t, const char*, const char*, std::uint64_t, const fi_info* hints, fi_info** found) {
  const Offer offer = simulation::network::network().offer;
  constexpr std::uint64_t order = FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_WAS | FI_ORDER_WAW;
  if (hints != nullptr) {
    const char* const name = hints->fabric_attr->prov_name;
    if ((name != nullptr && std::strcmp(name, "tcp") != 0) || (hints->caps & FI_ATOMIC) != 0) return -FI_ENODATA;
    if (hints->ep_attr->type != FI_EP_MSG && hints->ep_attr->type != FI_EP_UNSPEC) return -FI_ENODATA;
    if ((hints->tx_attr->msg_order & ~order) != 0) return -FI_ENODATA;
  }
  fi_info* const info = *found = fi_dupinfo(nullptr);
  info->caps = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  info->addr_format = FI_SOCKADDR_IN;
  info->tx_attr->caps = info->rx_attr->caps = info->caps;
  info->tx_attr->msg_order = info->rx_attr->msg_order = order;
  info->tx_attr->inject_size = 128;
  info->tx_attr->iov_limit = info->tx_attr->rma_iov_limit = info->rx_attr->iov_limit = offer == Offer::kRings ? 4 : 2;
  info->tx_attr->size = info->rx_attr->size = 256;
  info->ep_attr->type = FI_EP_MSG;
  info->ep_attr->max_msg_size = SIZE_MAX / 2;
  info->ep_attr->protocol = FI_PROTO_SOCK_TCP;
  info->domain_attr->name = strdup("simulated0");
  info->domain_attr->mr_key_size = sizeof(std::uint64_t);
  info->domain_attr->threading = FI_THREAD_SAFE;
  info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  info->fabric_attr->name = strdup("10.0.0.0/8");
  info->fabric_attr->prov_name = strdup("tcp");
  info->fabric_attr->prov_version = FI_VERSION(1, 17);
  return 0;
}

int fi_fabric(fi_fabric_attr*, fid_fabric** made, void* context) {
  static fi_ops operations = operations_of<fid_fabric>();
  static fi_ops_fabric calls{};
  calls = {sizeof calls, open_domain, open_listener, open_events, nullptr, try_wait, nullptr};
  *made = new fid_fabric{{FI_CLASS_FABRIC, context, &operations}, &calls, 0};
  return 0;
}

const char* fi_strerror(int code) {
  switch (code) {
    case FI_EAGAIN: return "Resource temporarily unavailable";
    case FI_ECANCELED: return "Operation canceled";
    case FI_ECONNREFUSED: return "Connection refused";
    case FI_EMFILE: return "Too many open files";
    case FI_ENOMEM: return "Cannot allocate memory";
    case FI_ENOTCONN: return "Transport endpoint is not connected";
    default: return "an error of the simulated network";
  }
}

char* fi_tostr(const void*, fi_type type) {
  static char version[] = "1.17.0 (simulated)", other[] = "?";
  return type == FI_TYPE_VERSION ? version : other;
}
}

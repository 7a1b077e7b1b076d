// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/transport/fabric/fake_provider.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <string_view>
#include <sys/eventfd.h>
#include <thread>
#include <utility>
#include <vector>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include "transport/base/files.hpp"

namespace farside::testing {
namespace fake {
namespace {

constexpr const char* kName = "fake";

// ---- objects, which one mutex guards --------------------------------------------------------------------------------

using Bytes = std::vector<std::byte>;

// What a queue has becomes readable on its descriptor.
struct Readable {
  UniqueFd fd{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  void set() const { eventfd_write(fd.get(), 1); }
  void clear() const {
    eventfd_t count = 0;
    eventfd_read(fd.get(), &count);
  }
};

struct Completions {
  fid_cq fid{};
  std::size_t size = 0;
  std::size_t posted = 0;  // operations and receives whose completions were not read
  struct Entry {
    fi_cq_msg_entry entry;
    int error = 0;
  };
  std::deque<Entry> entries;
  Readable readable;
};
struct Event {
  std::uint32_t kind = 0;
  int error = 0;
  ::fid* of = nullptr;
  fi_info* info = nullptr;
  Bytes data;
};
struct Events {
  fid_eq fid{};
  std::deque<Event> waiting;
  Readable readable;
};
struct Listener {
  fid_pep fid{};
  Events* events = nullptr;
  sockaddr_in address{};
};
struct Message {
  Bytes bytes;
  Completions* sender = nullptr;
  void* context = nullptr;
};
struct Posted {
  void* buffer = nullptr;
  std::size_t bytes = 0;
  void* context = nullptr;
};
// The shared receives, or an endpoint of a connection.
struct Channel {
  fid_ep fid{};
  Events* events = nullptr;
  Completions* queue = nullptr;
  Channel* receives = nullptr;
  Channel* peer = nullptr;   // null before it is connected, and after
  ::fid* request = nullptr;  // of a peer, which it may accept
  std::deque<Posted> posted;
  std::deque<Message> waiting;
};
struct Region {
  fid_mr fid{};
  std::size_t bytes = 0;
};
struct Request {
  ::fid fid{};
  Channel* from = nullptr;
};

// The call and the completion that a FakeHold delays.
struct Held {
  const void* call = nullptr;
  const void* completion = nullptr;
  bool in_call = false;
  std::condition_variable changed;
  std::vector<std::pair<Completions*, fi_cq_msg_entry>> completions;
};

struct Network {
  std::mutex mutex;
  std::map<std::uint16_t, Listener*> listeners;
  std::map<Channel*, Request*> requests;  // of endpoints that wait for an answer
  FakeQueues counted;
  FakeAtomics atomics;
  Held held;
  std::thread::id reader;  // of FakeReader; no thread id: any thread reads completions of RDMA
  std::uint16_t next_port = 1;
  std::uint64_t next_key = 1;
  std::size_t registered = 0;       // bytes
  std::size_t most_registered = 0;  // 0: no limit
};
Network& network() {
  static Network one;
  return one;
}

template <class Ops, class Fill>
Ops* operations(Fill&& fill) {
  static Ops made = [&] {
    Ops empty{};
    empty.size = sizeof empty;
    fill(empty);
    return empty;
  }();
  return &made;
}

template <class T>
int close_object(::fid* object) {
  const std::scoped_lock held(network().mutex);
  delete reinterpret_cast<T*>(object);
  return 0;
}
int wait_descriptor(int command, const UniqueFd& fd, void* out) {
  if (command != FI_GETWAIT) return -FI_ENOSYS;
  *static_cast<int*>(out) = fd.get();
  return 0;
}

void post(Completions& queue) {
  if (++queue.posted > queue.size) ++network().counted.overruns;
}
void complete(Completions& queue, void* context, std::uint64_t flags, std::size_t bytes, int error = 0) {
  queue.entries.push_back({{context, flags, bytes}, error});
  queue.readable.set();
}
void add(Events& events, Event event) {
  events.waiting.push_back(std::move(event));
  events.readable.set();
}

Bytes copy_of(const void* data, std::size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(data);
  return Bytes(from, from + bytes);
}

// ---- events ---------------------------------------------------------------------------------------------------------

ssize_t read_event(fid_eq* fid, std::uint32_t* kind, void* out, std::size_t bytes, std::uint64_t) {
  const std::scoped_lock held(network().mutex);
  auto& events = *reinterpret_cast<Events*>(fid);
  events.readable.clear();
  if (events.waiting.empty()) return -FI_EAGAIN;
  if (events.waiting.front().error != 0) return -FI_EAVAIL;
  const Event event = std::move(events.waiting.front());
  events.waiting.pop_front();
  auto* const entry = static_cast<fi_eq_cm_entry*>(out);
  *kind = event.kind;
  entry->fid = event.of;
  entry->info = event.info;
  const std::size_t data = std::min(event.data.size(), bytes - sizeof *entry);
  if (data > 0) std::memcpy(entry->data, event.data.data(), data);
  return static_cast<ssize_t>(sizeof *entry + data);
}

ssize_t read_event_error(fid_eq* fid, fi_eq_err_entry* out, std::uint64_t) {
  const std::scoped_lock held(network().mutex);
  auto& events = *reinterpret_cast<Events*>(fid);
  if (events.waiting.empty() || events.waiting.front().error == 0) return -FI_EAGAIN;
  out->fid = events.waiting.front().of;
  out->err = events.waiting.front().error;
  events.waiting.pop_front();
  return sizeof *out;
}

int open_events(fid_fabric*, fi_eq_attr*, fid_eq** out, void*) {
  auto* const events = new Events;
  events->fid.fid.fclass = FI_CLASS_EQ;
  events->fid.fid.ops = operations<fi_ops>([](fi_ops& ops) {
    ops.close = close_object<Events>;
    ops.control = [](::fid* fid, int command, void* arg) {
      return wait_descriptor(command, reinterpret_cast<Events*>(fid)->readable.fd, arg);
    };
  });
  events->fid.ops = operations<fi_ops_eq>([](fi_ops_eq& ops) {
    ops.read = read_event;
    ops.readerr = read_event_error;
  });
  *out = &events->fid;
  return 0;
}

// ---- connections ----------------------------------------------------------------------------------------------------

// The connection ends, for both sides.
void part(Channel& channel) {
  if (channel.peer == nullptr) return;
  Channel& peer = *std::exchange(channel.peer, nullptr);
  peer.peer = nullptr;
  add(*peer.events, {FI_SHUTDOWN, 0, &peer.fid.fid, nullptr, {}});
}

int connect_channel(fid_ep* fid, const void* address, const void* data, std::size_t bytes) {
  const std::scoped_lock held(network().mutex);
  auto* const channel = reinterpret_cast<Channel*>(fid);
  const auto found = network().listeners.find(static_cast<const sockaddr_in*>(address)->sin_port);
  if (found == network().listeners.end()) return -FI_ECONNREFUSED;
  auto* const request = new Request;
  request->from = channel;
  network().requests[channel] = request;
  fi_info* const info = fake_provider().release();
  info->handle = &request->fid;
  add(*found->second->events, {FI_CONNREQ, 0, &found->second->fid.fid, info, copy_of(data, bytes)});
  return 0;
}

// Returns the endpoint that has sent the request; null if it is gone.
Channel* take_request(::fid* handle) {
  auto* const request = reinterpret_cast<Request*>(handle);
  Channel* const from = request->from;
  if (from != nullptr) network().requests.erase(from);
  delete request;
  return from;
}

int accept_channel(fid_ep* fid, const void* data, std::size_t bytes) {
  const std::scoped_lock held(network().mutex);
  auto& channel = *reinterpret_cast<Channel*>(fid);
  Channel* const from = take_request(channel.request);
  if (from == nullptr) return -FI_ECONNRESET;
  channel.peer = from;
  from->peer = &channel;
  add(*from->events, {FI_CONNECTED, 0, &from->fid.fid, nullptr, copy_of(data, bytes)});
  add(*channel.events, {FI_CONNECTED, 0, &channel.fid.fid, nullptr, {}});
  return 0;
}

int reject_channel(fid_pep*, ::fid* handle, const void*, std::size_t) {
  const std::scoped_lock held(network().mutex);
  if (Channel* const from = take_request(handle)) add(*from->events, {0, ECONNREFUSED, &from->fid.fid, nullptr, {}});
  return 0;
}

int shut_channel_down(fid_ep* fid, std::uint64_t) {
  const std::scoped_lock held(network().mutex);
  part(*reinterpret_cast<Channel*>(fid));
  return 0;
}

int close_channel(::fid* fid) {
  const std::scoped_lock held(network().mutex);
  auto* const channel = reinterpret_cast<Channel*>(fid);
  part(*channel);
  if (const auto found = network().requests.find(channel); found != network().requests.end()) {
    found->second->from = nullptr;
    network().requests.erase(found);
  }
  if (channel->events != nullptr) {
    std::erase_if(channel->events->waiting, [&](const Event& each) { return each.of == fid; });
  }
  delete channel;
  return 0;
}

int bind_channel(::fid* fid, ::fid* to, std::uint64_t) {
  const std::scoped_lock held(network().mutex);
  auto& channel = *reinterpret_cast<Channel*>(fid);
  switch (to->fclass) {
    case FI_CLASS_EQ: channel.events = reinterpret_cast<Events*>(to); break;
    case FI_CLASS_CQ: channel.queue = reinterpret_cast<Completions*>(to); break;
    default: channel.receives = reinterpret_cast<Channel*>(to);
  }
  // What was posted before there was a connection counts from now on.
  if (channel.receives != nullptr && channel.receives->queue == nullptr) {
    channel.receives->queue = channel.queue;
    channel.queue->posted += channel.receives->posted.size();
  }
  return 0;
}

int listener_name(::fid* fid, void* out, std::size_t* bytes) {
  *bytes = sizeof(sockaddr_in);
  std::memcpy(out, &reinterpret_cast<Listener*>(fid)->address, *bytes);
  return 0;
}

fi_ops_cm* connection_operations() {
  return operations<fi_ops_cm>([](fi_ops_cm& ops) {
    ops.getname = listener_name;
    ops.listen = [](fid_pep*) { return 0; };
    ops.connect = connect_channel;
    ops.accept = accept_channel;
    ops.reject = reject_channel;
    ops.shutdown = shut_channel_down;
  });
}

int open_listener(fid_fabric*, fi_info*, fid_pep** out, void*) {
  const std::scoped_lock held(network().mutex);
  auto* const listener = new Listener;
  listener->address.sin_family = AF_INET;
  listener->address.sin_port = network().next_port++;
  network().listeners[listener->address.sin_port] = listener;
  listener->fid.fid.ops = operations<fi_ops>([](fi_ops& ops) {
    ops.close = [](::fid* fid) {
      {
        const std::scoped_lock lock(network().mutex);
        network().listeners.erase(reinterpret_cast<Listener*>(fid)->address.sin_port);
      }
      return close_object<Listener>(fid);
    };
    ops.bind = [](::fid* fid, ::fid* to, std::uint64_t) {
      reinterpret_cast<Listener*>(fid)->events = reinterpret_cast<Events*>(to);
      return 0;
    };
  });
  listener->fid.cm = connection_operations();
  *out = &listener->fid;
  return 0;
}

// ---- completion queues ----------------------------------------------------------------------------------------------

ssize_t read_completions(fid_cq* fid, void* out, std::size_t count) {
  const std::scoped_lock held(network().mutex);
  auto& queue = *reinterpret_cast<Completions*>(fid);
  std::size_t read = 0;
  for (; read < count && !queue.entries.empty(); queue.entries.pop_front()) {
    const Completions::Entry& next = queue.entries.front();
    if (next.error != 0) break;
    const bool kept = (next.entry.flags & FI_RMA) != 0 && network().reader != std::thread::id();
    if (kept && network().reader != std::this_thread::get_id())
      return read > 0 ? static_cast<ssize_t>(read) : -FI_EAGAIN;
    --queue.posted;
    static_cast<fi_cq_msg_entry*>(out)[read++] = next.entry;
  }
  if (read > 0) network().counted.readers.insert(std::this_thread::get_id());
  if (read > 0 || queue.entries.empty()) return read > 0 ? static_cast<ssize_t>(read) : -FI_EAGAIN;
  return -FI_EAVAIL;
}

ssize_t read_error(fid_cq* fid, fi_cq_err_entry* out, std::uint64_t) {
  const std::scoped_lock held(network().mutex);
  auto& queue = *reinterpret_cast<Completions*>(fid);
  if (queue.entries.empty() || queue.entries.front().error == 0) return -FI_EAGAIN;
  out->op_context = queue.entries.front().entry.op_context;
  out->flags = queue.entries.front().entry.flags;
  out->err = queue.entries.front().error;
  queue.entries.pop_front();
  --queue.posted;
  return 1;
}

int open_queue(fid_domain*, fi_cq_attr* attributes, fid_cq** out, void*) {
  auto* const queue = new Completions;
  queue->size = attributes->size;
  queue->fid.fid.fclass = FI_CLASS_CQ;
  queue->fid.fid.ops = operations<fi_ops>([](fi_ops& ops) {
    ops.close = close_object<Completions>;
    ops.control = [](::fid* fid, int command, void* arg) {
      return wait_descriptor(command, reinterpret_cast<Completions*>(fid)->readable.fd, arg);
    };
  });
  queue->fid.ops = operations<fi_ops_cq>([](fi_ops_cq& ops) {
    ops.read = read_completions;
    ops.readerr = read_error;
    ops.strerror = [](fid_cq*, int, const void*, char*, std::size_t) { return "of the queue pair"; };
  });
  *out = &queue->fid;
  return 0;
}

// ---- messages and RDMA ----------------------------------------------------------------------------------------------

void deliver(Channel& receives, const Message& message) {
  const Posted into = receives.posted.front();
  receives.posted.pop_front();
  std::memcpy(into.buffer, message.bytes.data(), std::min(into.bytes, message.bytes.size()));
  complete(*receives.queue, into.context, FI_RECV | FI_MSG, message.bytes.size());
  complete(*message.sender, message.context, FI_SEND | FI_MSG, 0);
}

ssize_t post_receive(fid_ep* fid, void* buffer, std::size_t bytes, void*, fi_addr_t, void* context) {
  const std::scoped_lock held(network().mutex);
  auto& receives = *reinterpret_cast<Channel*>(fid);
  if (receives.queue != nullptr) post(*receives.queue);
  receives.posted.push_back({buffer, bytes, context});
  if (receives.waiting.empty()) return 0;
  deliver(receives, receives.waiting.front());
  receives.waiting.pop_front();
  return 0;
}

ssize_t send(fid_ep* fid, const fi_msg* message, std::uint64_t) {
  const std::scoped_lock held(network().mutex);
  auto& channel = *reinterpret_cast<Channel*>(fid);
  if (channel.peer == nullptr) return -FI_ENOTCONN;
  post(*channel.queue);
  ++network().counted.messages;
  Channel& receives = *channel.peer->receives;
  Message sent{copy_of(message->msg_iov->iov_base, message->msg_iov->iov_len), channel.queue, message->context};
  if (!receives.posted.empty()) {
    deliver(receives, sent);
  } else {
    ++network().counted.not_ready;
    receives.waiting.push_back(std::move(sent));
  }
  return 0;
}

template <bool writes>
ssize_t move(fid_ep* fid, const fi_msg_rma* message, std::uint64_t) {
  std::unique_lock locked(network().mutex);
  auto& channel = *reinterpret_cast<Channel*>(fid);
  if (channel.peer == nullptr) return -FI_ENOTCONN;
  if (writes) ++network().counted.writes;
  post(*channel.queue);
  auto* const there = reinterpret_cast<void*>(message->rma_iov->addr);  // NOLINT(performance-no-int-to-ptr)
  Held& held = network().held;
  if (there != nullptr && there == held.call) {
    held.in_call = true;
    held.changed.notify_all();
    held.changed.wait(locked, [&] { return there != held.call; });
    held.in_call = false;
  }
  if (message->iov_count > 0) {
    void* const here = message->msg_iov->iov_base;
    std::memcpy(writes ? there : here, writes ? here : there, message->msg_iov->iov_len);
  }
  constexpr std::uint64_t kFlags = FI_RMA | (writes ? FI_WRITE : FI_READ);
  if (there != nullptr && there == held.completion) {
    held.completions.push_back({channel.queue, {message->context, kFlags, 0}});
  } else {
    complete(*channel.queue, message->context, kFlags, 0);
  }
  return 0;
}

// Without `compare` a fetch-add, else a compare-and-swap.
ssize_t atomic(fid_ep* fid, const void* operand, const void* compare, void* result, std::uint64_t address,
               void* context) {
  const std::scoped_lock held(network().mutex);
  auto& channel = *reinterpret_cast<Channel*>(fid);
  if (channel.peer == nullptr) return -FI_ENOTCONN;
  const FakeAtomics& form = network().atomics;
  const auto value = [&](const void* from) {
    return form.by_value ? std::bit_cast<std::uint64_t>(from) : *static_cast<const std::uint64_t*>(from);
  };
  auto& there = *reinterpret_cast<std::uint64_t*>(address);  // NOLINT(performance-no-int-to-ptr)
  const std::uint64_t before = there;
  if (form.lose) {
  } else if (compare == nullptr) {
    there += value(operand);
  } else if (before == value(compare)) {
    there = value(operand);
  }
  *static_cast<std::uint64_t*>(result) = form.swaps_result ? __builtin_bswap64(before) : before;
  post(*channel.queue);
  complete(*channel.queue, context, FI_ATOMIC, sizeof before);
  return 0;
}

int open_channel(bool shares, ::fid* request, fid_ep** out) {
  auto* const channel = new Channel;
  channel->request = request;
  channel->fid.fid.fclass = shares ? FI_CLASS_SRX_CTX : FI_CLASS_EP;
  channel->fid.fid.ops = operations<fi_ops>([](fi_ops& ops) {
    ops.close = close_channel;
    ops.bind = bind_channel;
    ops.control = [](::fid*, int, void*) { return 0; };
  });
  channel->fid.cm = connection_operations();
  channel->fid.msg = operations<fi_ops_msg>([](fi_ops_msg& ops) {
    ops.recv = post_receive;
    ops.sendmsg = send;
  });
  channel->fid.rma = operations<fi_ops_rma>([](fi_ops_rma& ops) {
    ops.writemsg = move<true>;
    ops.readmsg = move<false>;
  });
  channel->fid.atomic = operations<fi_ops_atomic>([](fi_ops_atomic& ops) {
    ops.readwrite = [](fid_ep* fid, const void* operand, std::size_t, void*, void* result, void*, fi_addr_t,
                       std::uint64_t address, std::uint64_t, fi_datatype, fi_op,
                       void* context) { return atomic(fid, operand, nullptr, result, address, context); };
    ops.compwrite = [](fid_ep* fid, const void* operand, std::size_t, void*, const void* compare, void*, void* result,
                       void*, fi_addr_t, std::uint64_t address, std::uint64_t, fi_datatype, fi_op,
                       void* context) { return atomic(fid, operand, compare, result, address, context); };
  });
  *out = &channel->fid;
  return 0;
}

// ---- the domain -----------------------------------------------------------------------------------------------------

int close_region(::fid* object) {
  auto* const region = reinterpret_cast<Region*>(object);
  {
    const std::scoped_lock held(network().mutex);
    network().registered -= region->bytes;
  }
  delete region;
  return 0;
}

int register_memory(::fid*, const void*, std::size_t bytes, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                    fid_mr** out, void*) {
  const std::scoped_lock held(network().mutex);
  if (network().most_registered > 0 && network().registered + bytes > network().most_registered) {
    ++network().counted.refused_memory;
    return -FI_ENOMEM;
  }
  network().registered += bytes;
  auto* const region = new Region;
  region->bytes = bytes;
  region->fid.key = network().next_key++;
  region->fid.mem_desc = region;
  region->fid.fid.ops = operations<fi_ops>([](fi_ops& ops) { ops.close = close_region; });
  *out = &region->fid;
  return 0;
}

int open_domain(fid_fabric*, fi_info*, fid_domain** out, void*) {
  auto* const domain = new fid_domain{};
  domain->fid.ops = operations<fi_ops>([](fi_ops& ops) { ops.close = close_object<fid_domain>; });
  domain->ops = operations<fi_ops_domain>([](fi_ops_domain& ops) {
    ops.cq_open = open_queue;
    ops.endpoint = [](fid_domain*, fi_info* info, fid_ep** endpoint, void*) {
      return open_channel(false, info->handle, endpoint);
    };
    ops.srx_ctx = [](fid_domain*, fi_rx_attr*, fid_ep** receives, void*) {
      return open_channel(true, nullptr, receives);
    };
    ops.query_atomic = [](fid_domain*, fi_datatype, fi_op, fi_atomic_attr* attributes, std::uint64_t) {
      attributes->count = 1;
      return 0;
    };
  });
  domain->mr = operations<fi_ops_mr>([](fi_ops_mr& ops) { ops.reg = register_memory; });
  *out = domain;
  return 0;
}

// A completion queue is ready to be slept on if it is empty: what was signalled before was read.
int may_wait(fid_fabric*, ::fid** fids, int count) {
  const std::scoped_lock held(network().mutex);
  for (int i = 0; i < count; ++i) {
    if (fids[i]->fclass != FI_CLASS_CQ) continue;
    auto& queue = *reinterpret_cast<Completions*>(fids[i]);
    if (!queue.entries.empty()) return -FI_EAGAIN;
    queue.readable.clear();
  }
  return 0;
}

}  // namespace
}  // namespace fake

InfoHandle fake_provider(std::size_t largest, const FakeAtomics* atomics) {
  InfoHandle info(fi_allocinfo());
  info->caps = FI_MSG | FI_RMA | (atomics != nullptr ? FI_ATOMIC : 0);
  if (atomics != nullptr) {
    const std::scoped_lock held(fake::network().mutex);
    fake::network().atomics = *atomics;
  }
  info->addr_format = FI_SOCKADDR_IN;
  info->fabric_attr->prov_name = strdup("verbs");
  info->fabric_attr->name = strdup(fake::kName);
  info->domain_attr->name = strdup(fake::kName);
  info->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  info->domain_attr->mr_key_size = 4;
  info->tx_attr->inject_size = 256;
  info->ep_attr->type = FI_EP_MSG;
  info->ep_attr->max_msg_size = largest;
  return info;
}

FakeMemoryLimit::FakeMemoryLimit(std::size_t more) {
  const std::scoped_lock held(fake::network().mutex);
  fake::network().most_registered = fake::network().registered + more;
}

FakeMemoryLimit::~FakeMemoryLimit() {
  const std::scoped_lock held(fake::network().mutex);
  fake::network().most_registered = 0;
}

FakeReader::FakeReader() {
  const std::scoped_lock held(fake::network().mutex);
  fake::network().reader = std::this_thread::get_id();
}

FakeReader::~FakeReader() {
  const std::scoped_lock held(fake::network().mutex);
  fake::network().reader = {};
}

FakeHold::FakeHold(const void* call, const void* completion) {
  const std::scoped_lock locked(fake::network().mutex);
  fake::network().held.call = call;
  fake::network().held.completion = completion;
}

void FakeHold::wait_for_call() {
  std::unique_lock locked(fake::network().mutex);
  fake::Held& held = fake::network().held;
  held.changed.wait(locked, [&] { return held.in_call; });
}

void FakeHold::end() {
  const std::scoped_lock locked(fake::network().mutex);
  fake::Held& held = fake::network().held;
  held.call = held.completion = nullptr;
  held.changed.notify_all();
  for (const auto& [queue, entry] : held.completions) fake::complete(*queue, entry.op_context, entry.flags, 0);
  held.completions.clear();
}

FakeQueues fake_queues() {
  const std::scoped_lock held(fake::network().mutex);
  return std::exchange(fake::network().counted, {});
}

}  // namespace farside::testing

// In place of libfabric's, which it calls for all other providers.
extern "C" int fi_fabric(fi_fabric_attr* attributes, fid_fabric** out, void* context) {
  using namespace farside::testing::fake;
  if (attributes->name == nullptr || std::string_view(attributes->name) != kName) {
    static auto* const real = reinterpret_cast<decltype(&fi_fabric)>(dlsym(RTLD_NEXT, "fi_fabric"));
    return real(attributes, out, context);
  }
  auto* const fabric = new fid_fabric{};
  fabric->fid.ops = operations<fi_ops>([](fi_ops& ops) { ops.close = close_object<fid_fabric>; });
  fabric->ops = operations<fi_ops_fabric>([](fi_ops_fabric& ops) {
    ops.domain = open_domain;
    ops.passive_ep = open_listener;
    ops.eq_open = open_events;
    ops.trywait = may_wait;
  });
  *out = fabric;
  return 0;
}

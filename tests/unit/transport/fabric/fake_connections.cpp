// SPDX-License-Identifier: BSD-3-Clause
// Connections of the provider in memory: requests, answers and ends, and their events (fi_cm(3)).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/unit/transport/fabric/fake_objects.hpp"

namespace farside::testing::fake {
namespace {

// ---- events ---------------------------------------------------------------------------------------------------------

ssize_t read_event(fid_eq* fid, std::uint32_t* kind, void* out, std::size_t bytes, std::uint64_t) {
  const std::scoped_lock held(network().mutex);
  if (!network().may_read(FakeReader::Of::kEverything)) return -FI_EAGAIN;
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

}  // namespace

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

namespace {

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

}  // namespace

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

namespace {

int listener_name(::fid* fid, void* out, std::size_t* bytes) {
  *bytes = sizeof(sockaddr_in);
  std::memcpy(out, &reinterpret_cast<Listener*>(fid)->address, *bytes);
  return 0;
}

}  // namespace

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

}  // namespace farside::testing::fake

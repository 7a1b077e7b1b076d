// SPDX-License-Identifier: BSD-3-Clause
// The objects of the provider in memory (fake_provider.hpp), and what its two files share. One mutex guards them all.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <thread>
#include <utility>
#include <vector>

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "tests/unit/transport/fabric/fake_provider.hpp"
#include "transport/base/files.hpp"

namespace farside::testing::fake {

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
  // Of FakeReader: the only thread that reads completions of this kind. No thread id: any thread reads them.
  struct {
    FakeReader::Of what = FakeReader::Of::kRdma;
    std::thread::id thread;
  } reader;
  bool may_read(FakeReader::Of what) const {
    return reader.thread == std::thread::id() || reader.thread == std::this_thread::get_id() || reader.what != what;
  }
  std::uint16_t next_port = 1;
  std::uint64_t next_key = 1;
  std::size_t registered = 0;       // bytes
  std::size_t most_registered = 0;  // 0: no limit
};
inline Network& network() {
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
inline int wait_descriptor(int command, const UniqueFd& fd, void* out) {
  if (command != FI_GETWAIT) return -FI_ENOSYS;
  *static_cast<int*>(out) = fd.get();
  return 0;
}

inline void post(Completions& queue) {
  if (++queue.posted > queue.size) ++network().counted.overruns;
}
inline void complete(Completions& queue, void* context, std::uint64_t flags, std::size_t bytes, int error = 0) {
  queue.entries.push_back({{context, flags, bytes}, error});
  queue.readable.set();
}
inline void add(Events& events, Event event) {
  events.waiting.push_back(std::move(event));
  events.readable.set();
}

inline Bytes copy_of(const void* data, std::size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(data);
  return Bytes(from, from + bytes);
}

// Of connections (fake_connections.cpp).
int open_events(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** out, void* context);
int open_listener(fid_fabric* fabric, fi_info* info, fid_pep** out, void* context);
int close_channel(::fid* fid);
int bind_channel(::fid* fid, ::fid* to, std::uint64_t flags);
fi_ops_cm* connection_operations();

}  // namespace farside::testing::fake

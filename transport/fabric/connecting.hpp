// SPDX-License-Identifier: BSD-3-Clause
// Establishing connections: the data that both sides send, and the resources of connections.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "transport/base/address.hpp"

namespace farside {

// Hello: the data that both sides send when they connect (the private data of fi_cm(3)). They come from the network.
struct Hello {
  static constexpr std::uint32_t kMagic = 0x46415253;  // FARS
  static constexpr std::uint32_t kVersion = 4;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t from = 0;     // identity of the sender
  std::uint64_t secret = 0;   // of the listener; 0 in its answer
  std::uint64_t number = 0;   // of the connection: random, chosen by the side that connects
  std::uint64_t attempt = 0;  // the sender's attempts to connect to any peer so far, this request included
  RemoteKey ring;             // of the message ring into which the peer may write
};

// The bytes to send. The ring is left out where there is none: rdma_cm carries at most 56 bytes (rdma_connect(3)).
inline std::span<const std::byte> bytes_of(const Hello& hello) {
  return std::as_bytes(std::span(&hello, 1)).first(hello.ring.key != 0 ? sizeof hello : offsetof(Hello, ring));
}

// Reads what a peer has sent; none if it did not come from a farside of this version.
inline std::optional<Hello> read_hello(std::span<const std::byte> data) {
  Hello hello;
  if (data.size() < offsetof(Hello, ring)) return {};
  std::memcpy(&hello, data.data(), std::min(data.size(), sizeof hello));
  if (hello.magic != Hello::kMagic || hello.version != Hello::kVersion) return {};
  return hello;
}

// Returns the share that one of `processes` has of a resource of the node. A quarter stays for the MPI runtime and
// other programs.
constexpr std::uint64_t share_of_node(std::uint64_t all, std::size_t processes) {
  return (all - all / 4) / std::max<std::uint64_t>(processes, 1);
}

// Returns how many connections fit below a limit of descriptors, `open` of which are in use by others. The application
// keeps a reserve.
constexpr std::size_t connections_within(std::uint64_t limit, std::size_t open) {
  constexpr std::uint64_t kReserve = 256;
  const std::uint64_t others = open + (limit / 4 < kReserve ? limit / 4 : kReserve);
  return others < limit ? static_cast<std::size_t>(limit - others) : 0;
}

// Returns whether a connection error is transient: a cable was cut, the peer is too busy to accept, an address is not
// resolved yet, or a resource is short. Such an attempt is repeated until the peer is abandoned.
bool is_transient_connect_error(int error);

// ConnectionRoom: the resource of connections. Over an adapter each takes a queue pair of the node's, over TCP a
// descriptor of the process (RLIMIT_NOFILE). The soft limit of descriptors is raised only when connections need it:
// descriptors above 1023 do not fit into the fd_set of select(2).
//
// Not thread-safe: Fabric's mutex guards it. Errors: none. Cost: a comparison per connection.
class ConnectionRoom {
 public:
  // `queue_pairs`: those of the adapter (fi_domain(3), ep_cnt), 0 if their number is not known; none over TCP.
  explicit ConnectionRoom(std::optional<std::size_t> queue_pairs);

  // Returns how many connections this process may have, at least 1, if this number of processes of its node, this one
  // included, share the queue pairs; 0: any number.
  std::size_t most_connections(std::size_t processes) const {
    if (queue_pairs_ == 0) return 0;
    return std::max<std::size_t>(
        queue_pairs_ ? share_of_node(*queue_pairs_, processes) : connections_within(hard_limit_, open_), 1);
  }
  // The resource that limits this number, in words.
  const char* what_limits() const { return queue_pairs_ ? "the adapter's queue pairs" : "descriptors (ulimit -Hn)"; }
  // Makes room for so many connections, as far as that is possible.
  void allow(std::size_t connections) {
    if (connections > allowed_) [[unlikely]]
      raise_limit();
  }
  // Notes an error of a request. If the process has no descriptor left, its soft limit may have been lowered, or other
  // parts of the program use many descriptors.
  void note_error(int error);
  // Notes a shortage if the process has no descriptor left to duplicate this one.
  void look_for_shortage(int descriptor);
  // Whether the process, or its node, had no descriptor or no memory for a connection. The user resets it.
  bool shortage = false;

 private:
  bool raise_limit();

  const std::optional<std::size_t> queue_pairs_;
  std::size_t open_ = 0;  // descriptors at the start
  std::uint64_t hard_limit_ = 0;
  std::size_t allowed_ = SIZE_MAX;  // connections that fit below the soft limit
};

}  // namespace farside

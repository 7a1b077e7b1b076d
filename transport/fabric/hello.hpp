// SPDX-License-Identifier: BSD-3-Clause
// Hello: the data that both sides send when they connect (the private data of fi_cm(3)). They come from the network.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace farside {

// A message ring of the sender (message_ring.hpp), into which the receiver may write; key 0: there is none.
struct RingAddress {
  std::uint64_t at = 0;  // for RDMA
  std::uint64_t key = 0;
};

struct Hello {
  static constexpr std::uint32_t kMagic = 0x46415253;  // FARS
  static constexpr std::uint32_t kVersion = 4;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t from = 0;     // identity of the sender
  std::uint64_t secret = 0;   // of the listener; 0 in its answer
  std::uint64_t number = 0;   // of the connection: random, chosen by the side that connects
  std::uint64_t attempt = 0;  // the sender's attempts to connect to any peer so far, this request included
  RingAddress ring;
};

// What is sent. The ring is left out where there is none: rdma_cm carries at most 56 bytes (rdma_connect(3)).
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

}  // namespace farside

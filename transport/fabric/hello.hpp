// SPDX-License-Identifier: BSD-3-Clause
// Hello: the data that both sides send when they connect (the private data of fi_cm(3)). They come from the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace farside {

struct Hello {
  static constexpr std::uint32_t kMagic = 0x46415253;  // FARS
  static constexpr std::uint32_t kVersion = 3;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t from = 0;     // identity of the sender
  std::uint64_t secret = 0;   // of the listener; 0 in its answer
  std::uint64_t number = 0;   // of the connection: random, chosen by the side that connects
  std::uint64_t attempt = 0;  // the sender's attempts to connect to any peer so far, this request included
};

// Reads what a peer has sent; none if it did not come from a farside of this version.
inline std::optional<Hello> read_hello(std::span<const std::byte> data) {
  Hello hello;
  if (data.size() < sizeof hello) return {};
  std::memcpy(&hello, data.data(), sizeof hello);
  if (hello.magic != Hello::kMagic || hello.version != Hello::kVersion) return {};
  return hello;
}

}  // namespace farside

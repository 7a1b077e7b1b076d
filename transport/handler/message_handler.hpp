// SPDX-License-Identifier: BSD-3-Clause
// The handler: carries out lists of operations on this process's regions for origins that are reached over the fabric:
// atomics that no adapter does, many small operations in one message, and the control atomic that follows them. It runs
// wherever the endpoint is progressed, usually on the progress thread; it never calls MPI and never waits for the
// application.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/handler/message.hpp"
#include "transport/node/accumulate_lock.hpp"

namespace farside {

class AttachedRegions;

class MessageHandler {
 public:
  struct Region {
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
    AccumulateLockWord* lock = nullptr;
    bool always_locked = false;           // every accumulate takes the lock (some peer can do no CPU atomics)
    std::vector<std::uint64_t> peers;     // fabric addresses of those who may ask, by their index
    std::byte* control = nullptr;         // the control block, if any
    std::uint64_t control_bytes = 0;
    AttachedRegions* attached = nullptr;  // of a dynamic space: only what is attached may be touched
  };

  // Makes a region known under an id that cannot be guessed. Nobody may ask until admit.
  std::uint64_t publish(Region region);
  void admit(std::uint64_t id, std::vector<std::uint64_t> peers, bool always_locked);
  void withdraw(std::uint64_t id) { regions_.erase(id); }

  struct Answer {
    bool known_sender = false;    // otherwise there is nobody to answer
    std::uint64_t peer = 0;
    ReplyHeader header{};
    std::vector<std::byte> fetched;
    const char* refused = nullptr;  // why, when the request was not executed
  };
  // Executes one request. `message` comes from the network: everything in it is checked.
  Answer execute(std::span<const std::byte> message);

 private:
  std::unordered_map<std::uint64_t, Region> regions_;
};

}  // namespace farside

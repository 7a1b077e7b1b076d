// SPDX-License-Identifier: BSD-3-Clause
// The active-message handler. It executes requests of origins on this process's regions: atomics that no adapter
// executes, many small operations in one message, and the control steps before and after them. Over the fabric it runs
// in the thread that polls the endpoint, usually the progress thread; for on-node peers, see node_handler.hpp. It never
// calls MPI and never waits for the application.
//
// Not thread-safe: the caller serializes all calls. Errors: a refused request is reported by Answer::refused and by
// ReplyStatus::kRefused. Memory: 8 bytes per region and peer.
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
    bool always_locked = false;           // every accumulate takes the lock (some peer has no CPU atomics here)
    std::vector<std::uint64_t> peers;     // fabric addresses of the permitted senders, by their index
    std::byte* control = nullptr;         // the control block, if any
    std::uint64_t control_bytes = 0;
    AttachedRegions* attached = nullptr;  // of a dynamic space: the memory that may be accessed
  };

  // Adds a region and returns its id, which is random so that no other process can guess it. Until admit() the handler
  // refuses all requests that name the region.
  std::uint64_t publish(Region region);
  void admit(std::uint64_t id, std::vector<std::uint64_t> peers, bool always_locked);
  void withdraw(std::uint64_t id) { regions_.erase(id); }

  struct Answer {
    bool known_sender = false;    // false: no answer can be sent
    std::uint64_t peer = 0;
    ReplyHeader header{};
    std::vector<std::byte> fetched;
    const char* refused = nullptr;  // the reason, if the request was not executed to its end
  };
  // Executes one request. `message` comes from another process: the handler checks all of it before it executes any.
  Answer execute(std::span<const std::byte> message);

 private:
  std::unordered_map<std::uint64_t, Region> regions_;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The active-message handler. It executes requests of origins on this process's spaces: atomics that no adapter
// executes, many small operations in one message, and the control steps before and after them. Over the fabric it runs
// in the thread that polls the endpoint, usually the progress thread; for on-node peers, see node_handler.hpp. It never
// calls MPI, and waits for the application only while that holds the accumulate lock.
//
// Not thread-safe: the caller serializes all calls. Errors: a refused request is reported by Answer::refused and by
// ReplyStatus::kRefused. Memory: some 200 bytes per space, for any number of peers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/handler/message.hpp"
#include "transport/node/accumulate_lock.hpp"
#include "transport/node/integer_method.hpp"

namespace farside {

class AttachedRegions;

class MessageHandler {
 public:
  struct ServedSpace {
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
    AccumulateLockWord* lock = nullptr;
    IntegerMethod* integers = nullptr;    // the method of the integers there; null: always atomics
    bool always_locked = false;           // every accumulate takes the lock (some peer has no CPU atomics here)
    std::uint32_t ranks = 0;              // senders have ranks below this number
    std::byte* control = nullptr;         // the control block, if any
    std::uint64_t control_bytes = 0;
    AttachedRegions* attached = nullptr;  // of a dynamic space: the memory that may be accessed
    // What an origin must know to reach the space without the handler; the handler does not interpret it.
    std::array<std::byte, 64> description{};
    std::uint32_t description_bytes = 0;
  };

  // Adds a space. `id` is random, so that only those can name it whom the ranks of the space have told. Returns
  // false, and changes nothing, if there is such a space already.
  bool publish(std::uint64_t id, const ServedSpace& space) { return spaces_.try_emplace(id, space).second; }
  void withdraw(std::uint64_t id) { spaces_.erase(id); }

  struct Answer {
    bool known_sender = false;    // false: no answer is sent
    ReplyHeader header{};
    std::vector<std::byte> fetched;
    const char* refused = nullptr;  // the reason, if the request was not executed to its end
  };
  // Executes one request. `message` comes from another process: the handler checks all of it before it executes any.
  Answer execute(std::span<const std::byte> message);

 private:
  std::unordered_map<std::uint64_t, ServedSpace> spaces_;
};

}  // namespace farside

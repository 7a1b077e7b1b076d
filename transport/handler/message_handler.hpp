// SPDX-License-Identifier: BSD-3-Clause
// The active-message handler. It executes requests of origins on this process's spaces: atomics that no adapter
// executes, many small operations in one message, and the control steps before and after them. Over the fabric it runs
// in the thread that polls the endpoint, usually the progress thread; for on-node peers, see node_handler.hpp. It never
// calls MPI. It waits for an application thread only while that thread holds the mutex of the attached regions, and for
// Timing::kHandlerLock while it holds the accumulate lock.
//
// Not thread-safe: the caller serializes all calls. Errors: a refused request is reported by Answer::refused and by
// ReplyStatus. Memory: some 200 bytes per space, for any number of peers.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/base/timing.hpp"
#include "transport/handler/memory_fault.hpp"
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
    IntegerMethod* integers = nullptr;  // the method of the integers there; null: always atomics
    bool always_locked = false;         // every accumulate takes the lock (some peer has no CPU atomics here)
    std::uint32_t ranks = 0;            // senders have ranks below this number
    std::byte* control = nullptr;       // the control block, if any
    std::uint64_t control_bytes = 0;
    AttachedRegions* attached = nullptr;  // of a dynamic space: the memory that may be accessed
    // The data that an origin needs to access the space without the handler. The handler does not interpret them.
    std::array<std::byte, 64> description{};
    std::uint32_t description_bytes = 0;
  };

  // Adds a space. `id` is random, so that only processes that have received it from the ranks of the space can name the
  // space. Returns false, and changes nothing, if there is such a space already.
  bool publish(std::uint64_t id, const ServedSpace& space) {
    MemoryFault::expect();
    return spaces_.try_emplace(id, space).second;
  }
  void withdraw(std::uint64_t id) { spaces_.erase(id); }

  struct Answer {
    bool known_sender = false;  // false: no answer is sent
    bool deferred = false;      // nothing was executed: the accumulate lock was not free
    ReplyHeader header{};
    std::vector<std::byte> fetched;
    const char* refused = nullptr;  // the reason, if the request was not executed to its end
    const void* fault = nullptr;    // the address of an access that has failed (memory_fault.hpp)
  };
  // Executes one request. `message` comes from another process, which may change it during the call: the handler checks
  // all of it before it executes any, and each operation again. `memory`: the memory of an earlier answer's `fetched`,
  // for that of this one. `timeout`: for the accumulate lock, which is claimed. The caller executes a deferred request
  // again, later. Refusals are logged.
  Answer execute(std::span<const std::byte> message, std::vector<std::byte> memory = {},
                 std::chrono::microseconds timeout = Timing::kHandlerLock);

 private:
  static void log_refusal(const Answer& answer, const ServedSpace* space, std::uint32_t sender);
  static void execute_request(const RequestHeader& request, std::span<const std::byte> payload, ServedSpace& space,
                              std::chrono::microseconds timeout, Answer& answer);

  std::unordered_map<std::uint64_t, ServedSpace> spaces_;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// RemoteMemory: the control words of a group of ranks, as protocols (epochs/) see them. Words are 64 bits, named by
// rank and byte offset in that rank's control block. An operation is issued, takes effect at the target some time
// later, and is done after that; issuing never waits. Protocols are written as resumable steps over this concept and
// never block inside, so that the same code runs on the wire (control_memory.hpp), under an explorer of
// interleavings and in a simulation.
#pragma once

#include <concepts>
#include <cstdint>

namespace farside {

template <class M>
concept RemoteMemory = requires(M memory, const M& looked_at, typename M::Operation operation, int rank,
                                std::uint32_t word, std::uint64_t value) {
  // One atomic step on the word; the operation's value is what the word held before.
  memory.fetch_add(operation, rank, word, value);
  memory.compare_and_swap(operation, rank, word, value, value);
  // The operation's value is what the word holds.
  memory.read(operation, rank, word);
  // Must not meet an atomic step of others on the same word, not even a compare-and-swap that finds another value:
  // adapters may store the value back that they have read, over one that was written meanwhile (IBTA 9.4.5: atomic
  // among atomics only).
  memory.write(operation, rank, word, value);
  // No remote operation: done after a while, `value` times what handing a contended lock over takes here. The memory
  // begins with an estimate (a few round trips) and may learn. For waiters that look again, rarely.
  memory.pause(operation, value);
  // To learn from: a pause of the first number of hand-offs was over when the second number had taken place.
  memory.paused(value, value);
  // True when the operation has taken effect. Only then value() may be asked, or the operation used again.
  { operation.done() } -> std::convertible_to<bool>;
  { operation.value() } -> std::convertible_to<std::uint64_t>;
  // This rank's own words, read and changed in place; atomic against operations of peers.
  { looked_at.own(word) } -> std::convertible_to<std::uint64_t>;
  { memory.own_fetch_add(word, value) } -> std::convertible_to<std::uint64_t>;
};

}  // namespace farside

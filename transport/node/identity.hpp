// SPDX-License-Identifier: BSD-3-Clause
// The identities of nodes and of their processes.
#pragma once

#include <cstdint>

namespace farside {

// Which processes can share memory: those of one boot of one kernel, with the same host name, namespaces of process ids
// and of time, and user. (A launcher that wants two nodes on one machine gives them two host names.) Equal identities
// are a guess: a process is an on-node peer only if its segment can be mapped and has the announced nonce.
//
// Thread safety: any. Cost: some 20 us.

// Returns a hash of these properties of this process; never 0.
std::uint64_t node_identity();

// The identity of a process of this node, by which other processes find out whether the owner of something in shared
// memory has ended. It consists of the process id and the start time of the process: if the kernel reuses a process id,
// the start time differs. Both are in one word, for compare-and-swaps.
class ProcessIdentity {
 public:
  static constexpr unsigned kBits = 62;

  // Unknown: the identity of a process that does not know its process id in the other processes. It never counts as
  // dead.
  constexpr ProcessIdentity() = default;
  // The inverse of bits(). Other values give any identity.
  static constexpr ProcessIdentity of_bits(std::uint64_t bits) { return ProcessIdentity(bits & kAllBits); }
  // Returns the identity of the calling process, from /proc/self/stat (some 10 us). It is unknown if that file cannot
  // be read or belongs to another namespace of process ids.
  static ProcessIdentity own();

  constexpr std::uint64_t bits() const { return bits_; }
  constexpr bool known() const { return bits_ != 0; }
  // 0 if unknown.
  constexpr std::int32_t pid() const { return static_cast<std::int32_t>(bits_ & ((std::uint64_t{1} << kPidBits) - 1)); }
  // Returns whether this process has certainly ended: it does not exist, is a zombie, or its process id belongs to
  // another process. Returns false if this cannot be found out. Reads a file of /proc (some 10 us). Precondition: the
  // caller has the same node_identity() as this process. Thread safety: any.
  bool is_dead() const { return state() == State::kDead; }
  // The same, and whether it is stopped by a signal or a debugger. kUnknown: this cannot be found out.
  enum class State : std::uint8_t { kUnknown, kAlive, kStopped, kDead };
  State state() const;

 private:
  static constexpr std::uint64_t kAllBits = (std::uint64_t{1} << kBits) - 1;
  static constexpr unsigned kPidBits = 22;  // PID_MAX_LIMIT of the kernel is 2^22
  explicit constexpr ProcessIdentity(std::uint64_t bits) : bits_(bits) {}

  std::uint64_t bits_ = 0;  // | start, in clock ticks since the boot (40) | process id (22) |
};

// The same as is_dead(), of a process whose start time is not known; 0: unknown.
inline bool has_ended(std::uint32_t pid) { return ProcessIdentity::of_bits(pid).is_dead(); }

}  // namespace farside

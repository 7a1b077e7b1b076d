// SPDX-License-Identifier: BSD-3-Clause
// AccumulateRules: which method combines elements in one space (data/accumulates.md). All
// ranks of the space have the same rules. Thread safety: any, once the rules are set.
#pragma once

#include "transport/base/statistics.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside {

struct AccumulateRules {
  bool always_locked = false;  // every accumulate takes the accumulate lock: some rank uses cma
  bool by_nic = false;         // adapters change control words
  // Adapters combine 64-bit integers, too, and nothing else does: the atomicity domain of these is nic. It is the
  // domain of a whole space, as adapters and CPUs are not atomic to each other.
  bool integers_by_nic = false;

  // Returns whether aligned elements of the type are combined by CPU atomics, or as IntegerMethod says.
  bool may_take_atomics(BasicType type) const { return !always_locked && has_cpu_atomics(type); }
  AtomicMethod method(BasicType type, const void* address) const {
    return always_locked ? AtomicMethod::kLocked : atomic_method(type, address);
  }
  // Sets by_nic and integers_by_nic. `adapters`: those of all ranks have atomics. `single_elements`: all ranks say that
  // accumulates are of single elements (Space::Request). An adapter combines one element per operation, so a row goes
  // to the handler, where it is one message.
  void choose_domains(bool adapters, bool single_elements) {
    by_nic = adapters;
    integers_by_nic = adapters && single_elements;
  }
  // Returns whether the adapter executes accumulates of this type at this address. Then it does so for all ranks,
  // also for the owner and its on-node peers.
  bool nic(BasicType type, const void* address) const {
    return may_take_nic(type) && method(type, address) == AtomicMethod::kAtomic;
  }
  // Returns whether it does so at aligned addresses.
  bool may_take_nic(BasicType type) const {
    return integers_by_nic && (type == BasicType::kInt64 || type == BasicType::kUint64);
  }
  // Counts, in `counts` unless it is null, why an accumulate took no atomics.
  void count_slow(OperationCounts* counts, BasicType type, const void* address, bool by_handler) const {
    if (counts == nullptr) [[likely]]
      return;
    SlowAccumulate why = SlowAccumulate::kProvider;
    if (always_locked) {
      why = SlowAccumulate::kCma;
    } else if (!has_cpu_atomics(type)) {
      const std::size_t size = traits(type).size;
      why = (size == 4 || size == 8) && !has_gap(type) ? SlowAccumulate::kFloatingPoint : SlowAccumulate::kType;
    } else if (atomic_method(type, address) == AtomicMethod::kLocked) {
      why = SlowAccumulate::kUnaligned;
    }
    counts->add_slow(why, by_handler);
  }
};

// The most that is combined under the accumulate lock at a time, so that no other rank waits long for the lock.
inline constexpr std::size_t kLockedBytes = 16384;

}  // namespace farside

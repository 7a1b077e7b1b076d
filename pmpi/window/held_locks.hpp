// SPDX-License-Identifier: BSD-3-Clause
// The memory of the list of locks that a rank holds: its first few entries lie in the rank's control block, where ranks
// that wait for long read the holders of locks (wait_reports.cpp). This needs no second copy of the entries. Entries of
// released locks stay until they are overwritten; HeldLock::holds_alone() tells them apart. In windows for several
// threads the list is longer and lies on the heap, so peers cannot read it.
//
// Thread safety: one thread at a time. Readers in other processes may see half of a change.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>

#include "epochs/protocols/control_block.hpp"

namespace farside::pmpi {

// An allocator of lists that reserve kHeldLocks elements first. A longer list moves to the heap, and stays there.
template <class T>
class HeldLocksMemory {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;

  HeldLocksMemory() = default;
  // `memory`: of kHeldLocks elements.
  explicit HeldLocksMemory(void* memory) : memory_(memory) {}
  T* allocate(std::size_t count) {
    if (memory_ != nullptr && count == epochs::ControlBlock::kHeldLocks) return static_cast<T*>(memory_);
    return static_cast<T*>(::operator new(count * sizeof(T)));
  }
  void deallocate(T* elements, std::size_t /*count*/) {
    if (elements != memory_) ::operator delete(elements);
  }
  bool operator==(const HeldLocksMemory&) const = default;

 private:
  void* memory_ = nullptr;
};

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// MappedRoute: loads, stores and CPU atomics on data that this process maps: its own, and those of on-node peers.
// Operations are complete when they return. The functions whose names end in "at" are the fast path.
#pragma once

#include <cstring>

#include "transport/base/state.hpp"
#include "transport/node/integer_method.hpp"
#include "transport/routes/mapped/node_targets.hpp"
#include "transport/routes/route.hpp"

namespace farside {

// memcpy for lengths that are unknown at compile time and are mostly the size of one element: one load and one store
// instead of a call. Returns false, and copies nothing, if no single load and store copies this many bytes.
[[gnu::always_inline]] inline bool copy_small(void* to, const void* from, std::size_t bytes) {
  if (bytes == 8) [[likely]] {
    std::memcpy(to, from, 8);
    return true;
  }
  switch (bytes) {
    case 1: std::memcpy(to, from, 1); return true;
    case 2: std::memcpy(to, from, 2); return true;
    case 4: std::memcpy(to, from, 4); return true;
    case 16: std::memcpy(to, from, 16); return true;
    default: return false;
  }
}

// Carries out atomics on mapped memory in the domain nic: complete when it returns, and errors are logged.
class AdapterAtomics {
 public:
  virtual void atomic_at(int rank, const DataOperation& operation) = 0;

 protected:
  ~AdapterAtomics() = default;
};

class MappedRoute final : public Route {
 public:
  MappedRoute(NodeTargets& node, int rank) : Route(RouteKind::kMapped, rank), node_(node) {}
  // Precondition: no operation is under way. `adapter`: of the domain nic.
  void set_rules(const AccumulateRules& rules, AdapterAtomics* adapter) {
    take_rules(rules);
    adapter_ = adapter;
  }
  IntegerMethod& integers() { return integers_; }

  Status operate(int rank, const DataOperation& operation, Outstanding* own) override;
  Status flush(int /*rank*/) override { return flush_all(); }
  Status flush_all() override {
    this_thread.stores.drain();
    return {};
  }
  void expect_threads() override;

  // Operations at an address in the target's data: complete when they return.
  [[gnu::always_inline]] void put_at(const NodeTarget& target, std::byte* at, const void* origin, std::size_t bytes) {
    if (counting_ || !copy_small(at, origin, bytes)) return put_at_slow(target, at, origin, bytes);
    this_thread.stores.made();
  }
  [[gnu::always_inline]] void get_at(const NodeTarget& target, const std::byte* at, void* origin,
                                     std::size_t bytes) const {
    if (counting_ || !copy_small(origin, at, bytes)) get_at_slow(target, at, origin, bytes);
  }
  // Counts `bytes` that the caller has put or got by its own loads and stores.
  void moved(int rank, Counted what, std::size_t bytes) {
    count(*node_.find(rank), what, bytes);
    if (what == Counted::kPut) this_thread.stores.made();
  }
  void accumulate_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type, const void* origin,
                     void* fetched, std::size_t elements, Access access = Access::kShared);
  // The inline first step of accumulate_at(): the sum of one integer of 4 or 8 bytes by a CPU atomic, without the
  // accumulate lock. Returns false, and does nothing, where accumulate_at() decides.
  [[gnu::always_inline]] bool try_add_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type,
                                         const void* origin, void* fetched, std::size_t elements, Access access) {
    const std::size_t bytes = added_bytes(type);
    if (bytes == 0 || op != ReduceOp::kSum || elements != 1 || access != Access::kShared) return false;
    if (rules_.integers_by_nic || rules_.method(type, at) != AtomicMethod::kAtomic) return false;
    const IntegerPhase by = integers_.begin(1);
    if (by != IntegerPhase::kAtomics) return false;
    bytes == sizeof(std::uint64_t) ? add_atomic<std::uint64_t>(at, origin, fetched)
                                   : add_atomic<std::uint32_t>(at, origin, fetched);
    integers_.end(by);
    count(target, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, bytes);
    return true;
  }
  // Accumulates `rows` rows of `elements`. `stride` and `origin_stride` are in bytes; fetched rows have the origin's
  // stride.
  void accumulate_rows_at(const NodeTarget& target, std::byte* at, std::ptrdiff_t stride, ReduceOp op, BasicType type,
                          const std::byte* origin, std::byte* fetched, std::ptrdiff_t origin_stride,
                          std::size_t elements, std::size_t rows, Access access);
  void compare_and_swap_at(const NodeTarget& target, std::byte* at, BasicType type, const void* origin,
                           const void* compare, void* fetched);

 private:
  using Route::count;
  void count(const NodeTarget& target, Counted what, std::size_t bytes) const {
    if (!counting_) [[likely]]
      return;
    const NodeTargetExtra* const extra = node_.extra(target);
    if (extra != nullptr && extra->counts != nullptr) return counts_->add_here(*extra->counts, what, bytes);
    count_slow(target.rank, what, bytes);
  }
  // Slow paths of put_at and get_at: counting, and sizes that copy_small does not copy. They are tail calls, so that
  // the fast paths need no frame.
  void put_at_slow(const NodeTarget& target, std::byte* at, const void* origin, std::size_t bytes);
  void get_at_slow(const NodeTarget& target, const std::byte* at, void* origin, std::size_t bytes) const;
  // The operations, without counting.
  [[gnu::always_inline]] inline void combine_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type,
                                                const void* origin, void* fetched, std::size_t elements, Access access);
  [[gnu::always_inline]] inline void swap_at(const NodeTarget& target, std::byte* at, BasicType type,
                                             const void* origin, const void* compare, void* fetched);
  void atomic_by_nic_at(const NodeTarget& target, const std::byte* at, DataOperation operation);

  NodeTargets& node_;
  AdapterAtomics* adapter_ = nullptr;
  IntegerMethod integers_;  // the method of types with CPU atomics
};

}  // namespace farside

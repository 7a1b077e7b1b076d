// SPDX-License-Identifier: BSD-3-Clause
// Route: how this process reaches the data of other ranks of one space. Space::route() says which route leads to a
// rank. Each route has its own folder, and one line in base/address.hpp.
//
//   mapped   loads and stores; the fast path of its callers passes this interface by (mapped/mapped_route.hpp)
//   cma      process_vm_readv(2) and process_vm_writev(2), or the handler of an on-node peer
//   fabric   an Endpoint; also the way to control words that are not mapped (FabricControl)
//
// Thread safety: any, after expect_threads() or if the route was made for threads. Errors: an operation's Status has
// the errors of issuing; a flush returns later ones. Cost: node/on-node.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/base/statistics.hpp"
#include "transport/data/reduce_op.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/message.hpp"

namespace farside {

// AccumulateRules: which method combines elements in one space (data/accumulates.md). All
// ranks of the space have the same rules. Thread safety: any, once the rules are set.

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

// Operations of more bytes do not travel in lists: RDMA moves them in parallel.
inline constexpr std::size_t kMostCoalesced = 2048;
static_assert(kMostCoalesced <= OperationList::kMostInOne);

class Route {
 public:
  Route(RouteKind kind, int rank) : rank_(rank), kind_(kind) {}

  // The bytes of a rank's data, 0 in a dynamic space, and its unit.
  struct Extent {
    std::uint64_t bytes = 0;
    std::uint32_t unit = 0;
  };
  RouteKind kind(int rank) const { return rank == rank_ ? RouteKind::kSelf : kind_; }
  // Returns whether operations, but for queued puts, are complete when they return.
  bool immediate() const { return kRoutes[static_cast<std::size_t>(kind_)].immediate; }
  const AccumulateRules& rules() const { return rules_; }
  // From now on operations are counted there, and not in the process's statistics.
  void count_in(OperationCounts* counts) {
    counts_ = counts;
    counting_ = true;
  }

  // Operations on a rank's data. Offsets are bytes in its data; the caller has checked the range. An operation returns
  // when it is issued or queued. Before that it may wait, and polls, for a connection, a round trip at the first access
  // to a rank, or room at the provider. Local buffers stay in use until flush, except operands of at most kCopiedAtCall
  // bytes. `own` (see own_pending) counts the operation as well, and receives its errors.
  Status carry_out(int rank, const DataOperation& operation, Pending* own = nullptr) {
    count(rank, operation.counted(), operation.bytes());
    return operation.is_nothing() ? Status() : operate(rank, operation, own);
  }
  // The same for one block that was counted.
  virtual Status operate(int rank, const DataOperation& operation, Pending* own) = 0;
  // A put; but a small one may be queued until a flush or order_before_release(). kEnd: until the end of the epoch,
  // which the target awaits (active target synchronization, MPI 4.0 section 12.5): the put takes effect in the target's
  // Space::finish_puts(), and the origin calls CmaRoute::release() before it notifies the target.
  enum class Until : std::uint8_t { kFlush, kEnd };
  virtual Status queue_put(int rank, const DataOperation& put, Pending* own, Until /*until*/) {
    return carry_out(rank, put, own);
  }
  void count(int rank, Counted what, std::size_t bytes) const {
    if (!counting_) [[likely]]
      return;
    count_slow(rank, what, bytes);
  }

  // From so many fragments of one operation of the application (Fragments) on, they travel in lists to the rank's
  // handler.
  virtual std::size_t fewest_in_list(int /*rank*/, bool /*atomic*/) const { return SIZE_MAX; }
  // Carries out an operation in another way than lists, and counts it, if that is faster with so many fragments in all.
  // Otherwise returns nothing.
  virtual std::optional<Status> move_blocks(int /*rank*/, const DataOperation& /*operation*/,
                                            std::size_t /*fragments*/) {
    return std::nullopt;
  }
  // Returns whether a small operation does not travel in a list.
  virtual Result<bool> goes_alone(int /*rank*/, const DataOperation& /*operation*/) { return false; }
  // The most lists that send_lists() takes. `last`: nothing follows them.
  virtual std::size_t lists_together() const { return 1; }
  virtual Status send_lists(int /*rank*/, std::span<std::unique_ptr<OperationList>> /*lists*/, Pending* /*own*/,
                            bool /*last*/) {
    return {};
  }

  // Requests the regions around an address of a peer in a dynamic space (handler/message.hpp), and waits for them.
  virtual Status ask_for_regions(int /*rank*/, std::uint64_t /*address*/, std::span<std::byte> /*regions*/) {
    return {};
  }
  // Returns a counter for request-based operations on the rank; null where operations are complete, or queued with a
  // copy of their operand, when they return. Errors: kPeer.
  virtual Result<std::unique_ptr<Pending>> own_pending(int /*rank*/) { return std::unique_ptr<Pending>(); }
  // Abandons the operations of `own`, which may be null: a flush of the rank returns their errors.
  virtual void abandon(int /*rank*/, std::unique_ptr<Pending> /*own*/) {}
  // Wait until all operations are complete at the rank, or at all ranks; return the first error among them. `locally`:
  // until their local buffers are free.
  virtual Status flush(int rank, bool locally = false) = 0;
  virtual Status flush_all(bool locally = false) = 0;
  // Announces the fetch-add that ends an epoch (a lock's release, complete's notification): small operations are queued
  // until it is issued, and travel in one message with it. A flush of the rank withdraws the announcement.
  virtual void expect_release(int /*rank*/) {}
  // Waits for the operations that this fetch-add would overtake if it were issued next. Unlike a flush it does not
  // complete operations.
  virtual Status order_before_release(int /*rank*/) { return {}; }
  // From now on several threads may use the route at once. Precondition: no thread is in an operation.
  virtual void expect_threads() {}

 protected:
  ~Route() = default;
  void take_rules(const AccumulateRules& rules);
  void count_slow(int rank, Counted what, std::size_t bytes) const;

  OperationCounts* counts_ = nullptr;
  const int rank_;  // this process's
  const RouteKind kind_;
  AccumulateRules rules_;
  bool counting_ = false;
};

// Fragments: one operation of the application on a derived datatype. Where a route has a cost per operation, small
// fragments travel together in lists to the target's message handler.
//
// Used by one thread, for one operation. Errors: those of the route's operations. Cost: node/on-node.md.

class Fragments {
 public:
  // `own`: as in Route::put. `expected`: the approximate number of fragments.
  Fragments(Route& route, int rank, Pending* own, std::size_t expected)
      : route_(route), rank_(rank), own_(own), expected_(expected) {}

  // As the route's operation. Blocks that are put or combined must not overlap, as MPI requires of the entries of a
  // target's datatype.
  Status add(const DataOperation& operation);
  // Ends the operation, also after an error: issues the last list or leaves it queued.
  Status end() {
    if (list_ != nullptr) patiently([&] { full_.push_back(std::move(list_)); });
    return send_full(true);
  }

 private:
  Status add_to_list(DataOperation operation);
  Status list_is_full() {
    if (list_ == nullptr) return {};
    patiently([&] { full_.push_back(std::move(list_)); });
    return full_.size() < route_.lists_together() ? Status() : send_full(false);
  }
  // No order between fragments is needed, since they do not overlap.
  Status send_full(bool last) {
    if (full_.empty()) return {};
    std::vector<std::unique_ptr<OperationList>> lists = std::exchange(full_, {});
    return route_.send_lists(rank_, lists, own_, last);
  }

  Route& route_;
  const int rank_;
  Pending* const own_;
  const std::size_t expected_;
  std::unique_ptr<OperationList> list_;
  std::vector<std::unique_ptr<OperationList>> full_;
};

}  // namespace farside

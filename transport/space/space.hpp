// SPDX-License-Identifier: BSD-3-Clause
// Space: the memory that the ranks of a group have made reachable to each other. Each rank contributes a control block
// (words for protocols) and data (allocated here, or private memory of the application). Each target has one route,
// chosen when the space is made; operations then dispatch without searching.
//
// A rank's segment:   | header (nonce, accumulate lock, wake event) | control words ... | data, if allocated here |
//                     0                                64                  control_bytes, whole pages
//
// A space is made in four steps. Between them the caller exchanges their results among all ranks:
//   make -> map_peers(all SpaceDescriptors) -> [open_fabric -> connect(all FabricDescriptors)] -> finish
//
// Thread safety: with Request::threaded or after expect_threads(), several threads may be in operations, flushes and
// control calls at once; the steps above are for one thread, and deferred locks for processes with one thread.
//
// Errors: an operation's Status has the errors of issuing; flush returns later ones. kPeer: a peer is lost, or an
// operation failed; kRange: the memory is not attached, or the target's handler refused; kNoMemory. Making a space
// also returns kNoRoute and kBadSetting.
//
// Cost: transport/README.md, "Routes and costs". Memory: 160 bytes per rank, 208 more per rank that the fabric
// reaches.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/copy.hpp"
#include "transport/base/operation_counts.hpp"
#include "transport/base/result.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/stores.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/data/reduce_op.hpp"
#include "transport/handler/node_handler.hpp"
#include "transport/node/accumulate_lock.hpp"
#include "transport/node/integer_method.hpp"
#include "transport/node/segment.hpp"
#include "transport/process.hpp"
#include "transport/space/outstanding.hpp"

namespace farside {

class Regions;

// What a rank publishes about its memory; exchanged as bytes.
struct SpaceDescriptor {
  std::uint64_t nonce = 0;
  std::uint64_t nonce_address = 0;  // in that process, to try process_vm_readv on
  std::int32_t pid = 0;
  std::int32_t segment_fd = -1;
  std::uint64_t segment_bytes = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t data_address = 0;   // of private data, else 0
  std::int32_t data_fd = -1;        // of private data in a file that peers can map (ShareableMemory)
  std::uint64_t data_offset = 0;
  NodeHandlerDescriptor handler;  // of private data that peers cannot map
  MemoryNeed memory;  // of the segment: the ranks check together whether it suffices (check_memory_needs)
  std::uint64_t membarrier = 0;  // 1: takes part in global_membarrier()
};

struct FabricDescriptor {
  FabricAddress address;
  RemoteKey control;
  RemoteKey data;
  std::uint64_t region = 0;         // of the message handler
  std::uint64_t nic_atomics = 0;    // 1: adapter atomics reach its control words
};

class Space {
  struct Header {
    std::uint64_t nonce;
    AccumulateLockWord accumulate_lock;
    WakeEvent wake_event;
  };

 public:
  static constexpr std::size_t kHeaderBytes = 64;  // control words follow the header
  static_assert(sizeof(Header) <= kHeaderBytes);

  struct Request {
    int rank = 0;
    int ranks = 1;
    std::size_t control_bytes = 0;  // includes the header; equal on all ranks
    std::uint64_t data_bytes = 0;
    void* private_data = nullptr;   // null: allocate the data
    // Every rank maps every other rank's data for loads and stores, whatever the routes of operations are.
    bool shared = false;
    // If not 0: the data of all ranks, this many bytes in total, lie contiguously in rank order in rank 0's segment.
    std::uint64_t contiguous_bytes = 0;
    // The only data are the regions that ranks attach later (space/regions.hpp).
    bool dynamic = false;
    // Several threads of this process may be in operations at once.
    bool threaded = false;
  };
  static Result<std::unique_ptr<Space>> make(const Request& request);
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  ~Space();

  // `on_node_peers`: some peer may be on this node. Then private data get a handler (handler/node_handler.hpp).
  SpaceDescriptor describe(bool on_node_peers = true);

  // The result of mapping peers; the ranks combine their flags by "or".
  struct Reach {
    bool needs_fabric = false;     // some peer has no route inside the node
    bool uses_cma = false;         // some peer has the route cma
    std::string why;               // the reason of needs_fabric or unshared, for a message
    bool unshared = false;         // the space is shared, and some peer's data could not be mapped
  };
  // same_node[r]: rank r may be on this node (MPI_Comm_split_type); it counts as on-node if its segment can be mapped.
  Reach map_peers(std::span<const SpaceDescriptor> peers, std::span<const char> same_node);

  // All ranks call these two if some rank needs the fabric. `among`: the providers that all of them can use
  // (Process::usable_providers). Errors of open_fabric: those of Process::fabric() and Fabric::expose(); connect has
  // none.
  Result<FabricDescriptor> open_fabric(Providers among = kAnyProvider);
  Status connect(std::span<const FabricDescriptor> peers, bool some_cma);
  // Precondition: all ranks have mapped what they need.
  void finish(bool some_cma);

  // From now on operations are counted by target in the returned object, and not in the process's statistics.
  OperationCounts& count_by_target(bool threaded);
  // From now on several threads may use the space at once. Precondition: no thread is in an operation.
  void expect_threads();

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(targets_.size()); }
  std::byte* data() const { return data_; }
  // Null unless the space is dynamic.
  Regions* regions() const { return regions_.get(); }
  RouteKind route(int target) const { return targets_[static_cast<std::size_t>(target)].route; }
  // 0 in a dynamic space.
  std::uint64_t bytes(int target) const { return targets_[static_cast<std::size_t>(target)].bytes; }
  // The target's data where operations on them are loads and stores of this process (self, mapped), or null.
  std::byte* mapped(int target) const { return targets_[static_cast<std::size_t>(target)].data; }
  // The address at which the application loads and stores a target's data, or null. In a shared space it is null only
  // for data of no bytes in a segment of their own.
  std::byte* address(int target) const {
    const Target& to = targets_[static_cast<std::size_t>(target)];
    return to.bytes > 0 || contiguous_ ? to.memory : nullptr;
  }

  // Operations on a target's data. Offsets are bytes in its data; the caller has checked the range. An operation
  // returns when it is issued or coalesced. Local buffers stay in use until flush, except operands of at most
  // kCopiedAtCall bytes. `own` (see own_outstanding) counts the operation as well, and receives its errors.
  Status put(int target, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own = nullptr);
  Status get(int target, std::uint64_t offset, void* origin, std::size_t bytes, Outstanding* own = nullptr);
  // The same on a mapped target, at an address in its data: complete when they return.
  void put_at(int target, std::byte* at, const void* origin, std::size_t bytes) {
    if (counting_ || !copy_small(at, origin, bytes)) return put_at_slow(target, at, origin, bytes);
    stores_.made();
  }
  void get_at(int target, const std::byte* at, void* origin, std::size_t bytes) const {
    if (counting_ || !copy_small(origin, at, bytes)) get_at_slow(target, at, origin, bytes);
  }
  // Counts `bytes` that the caller has put to or got from a mapped target by its own loads and stores.
  void moved(int target, Counted what, std::size_t bytes) {
    count(target, what, bytes);
    if (what == Counted::kPut) stores_.made();
  }
  // kAlone: no other process or thread accesses the target's data meanwhile (this process holds an exclusive lock and
  // has one thread), so that plain loops suffice.
  enum class Access : std::uint8_t { kShared, kAlone };
  // Atomic per element. `fetched` may be null.
  Status accumulate(int target, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                    std::size_t count, Access access = Access::kShared, Outstanding* own = nullptr);
  void accumulate_at(int target, std::byte* at, ReduceOp op, BasicType type, const void* origin, void* fetched,
                     std::size_t count, Access access = Access::kShared);
  // Accumulates `rows` rows of `count` elements. `stride` and `origin_stride` are in bytes; fetched rows have the
  // origin's stride.
  void accumulate_rows_at(int target, std::byte* at, std::ptrdiff_t stride, ReduceOp op, BasicType type,
                          const std::byte* origin, std::byte* fetched, std::ptrdiff_t origin_stride, std::size_t count,
                          std::size_t rows, Access access);
  Status compare_and_swap(int target, std::uint64_t offset, BasicType type, const void* origin, const void* compare,
                          void* fetched);
  void compare_and_swap_at(int target, std::byte* at, BasicType type, const void* origin, const void* compare,
                           void* fetched);
  // Waits until all operations towards the target are complete there; returns the first error among them.
  Status flush(int target);
  // Returns whether operations towards the target are complete when they return. Then a flush is only drain_stores(),
  // and an atomic that releases a mapped lock replaces even that.
  bool immediate(int target) const { return route(target) != RouteKind::kFabric; }
  // Returns whether this holds for all targets; then all control words are mapped, too.
  bool all_immediate() const { return all_immediate_; }
  void drain_stores() { stores_.drain(); }
  // Returns a counter for request-based operations on the target; null where operations are complete when they
  // return.
  std::unique_ptr<Outstanding> own_outstanding(int target);
  // Abandons the operations of `own`: a flush of the target returns their errors.
  void abandon(int target, std::unique_ptr<Outstanding> own);
  // The fragments of one operation (fragments.hpp).
  class Fragments;
  void stores_drained_by_atomic() { stores_.drained_by_atomic(); }
  Status flush_all();

  // Waits for the operations that a control fetch-add towards the target would overtake if it were issued next.
  // Precedes the fetch-add that ends an epoch (a lock's release, complete's notification). It does not complete
  // operations: a flush does.
  Status order_before_release(int target);
  // Announces such a fetch-add: small operations on this target are coalesced until then, and travel in one message
  // with it. A flush of the target withdraws the announcement.
  void expect_release(int target) {
    AllOutstanding* const all = this->target(target).outstanding.get();
    if (all == nullptr) return;
    const std::scoped_lock held(coalesced_mutex_);
    all->release_expected = true;
  }

  // Defers a lock of the target in a process with one thread, so that the lock can travel with the operations of its
  // epoch. The operations are coalesced behind the lock; before the first one that cannot wait, `take` takes the
  // lock. The deferral ends by `take`, or by one of the following calls.
  bool may_defer_lock(int target) const;
  void defer_lock(int target, std::function<Status()> take);
  // Ends the deferral: `take` takes the lock by itself, while the coalesced operations stay coalesced.
  template <class Take>
  auto acquire_deferred_lock(int target, Take&& take) {
    AllOutstanding& all = *this->target(target).outstanding;
    all.deferred = nullptr;
    Coalesced coalesced = take_coalesced(all, true);
    coalesced_sent(all, {});
    auto taken = take();
    if (taken) coalesce_again(all, std::move(coalesced));
    return taken;
  }
  // Sends one message with the acquire step, the coalesced operations and the release step, and waits for its reply.
  // If the acquire step stops it, only the ticket is taken: the caller must wait for the lock, and the result has the
  // coalesced operations.
  Status execute_locked(int target, const ControlStep& acquire_step, const ControlStep& release_step,
                        LockedResult& result);
  // Puts the operations that were stopped back, to travel with the release of the lock, which is taken now.
  void coalesce_again(int target, std::unique_ptr<OperationList> list);

  // Returns a target's control word if CPU atomics change it and it is mapped, else null. `word` is a byte offset,
  // from kHeaderBytes, in the target's segment (control_memory.hpp).
  std::uint64_t* control_word(int target, std::uint32_t word) const {
    if (control_by_nic_) return nullptr;
    std::byte* control = targets_[static_cast<std::size_t>(target)].control;
    return control == nullptr ? nullptr : reinterpret_cast<std::uint64_t*>(control + word);
  }
  // Returns this rank's own word, for reading. Changes go through control_word or, in the domain nic, through
  // control.
  std::uint64_t* own_control_word(std::uint32_t word) const {
    return reinterpret_cast<std::uint64_t*>(segment_.mapping.base() + word);
  }
  // Wakes a mapped target if it sleeps; called after a change of its control words.
  void wake(int target) const {
    std::byte* control = targets_[static_cast<std::size_t>(target)].control;
    reinterpret_cast<Header*>(control)->wake_event.wake_if_armed();
  }
  WakeEvent& wake_event() const { return reinterpret_cast<Header*>(segment_.mapping.base())->wake_event; }
  // Issues a step on a control word for which control_word() is null: one message, or one operation of the adapter.
  // `operand`, `compare` and `fetched` stay in use until `pending` is done.
  Status control(ControlCall call, int target, std::uint32_t word, Pending& pending, const std::uint64_t* operand,
                 const std::uint64_t* compare, std::uint64_t* fetched);

 private:
  struct Target {
    RouteKind route = RouteKind::kFabric;
    std::byte* data = nullptr;         // if operations are loads and stores
    std::byte* memory = nullptr;       // if the data are mapped; in a shared space also for other routes
    std::byte* control = nullptr;      // if mapped
    std::uint64_t bytes = 0;
    OperationCounts::Row* counts = nullptr;  // in a process with one thread
    std::uint64_t address = 0;         // of private data, in its process; of contiguous data, here
    std::int32_t pid = 0;
    Peer peer = 0;
    RemoteKey control_key, data_key;
    std::uint64_t region = 0;
    Mapping mapping;
    Mapping data_mapping;              // of data in a file of ShareableMemory
    std::unique_ptr<PeerNodeHandler> handler;            // of the route cma, if the peer has one
    std::unique_ptr<AllOutstanding> outstanding;         // of the route fabric, else null
  };

  // The most that is combined under the accumulate lock at a time.
  static constexpr std::size_t kLockedBytes = 16384;
  // Operations of more bytes are not coalesced: RDMA moves them in parallel. Before a release a larger operation pays
  // as well, since coalescing saves a round trip.
  static constexpr std::size_t kMostCoalesced = 2048;
  static constexpr std::size_t kMostBeforeRelease = 4096;
  static_assert(kMostCoalesced <= OperationList::kMostInOne && kMostBeforeRelease <= OperationList::kMostInOne);
  // The most lists under way towards one target: lists hold copies.
  static constexpr std::uint32_t kMostLists = 64;

  friend class Regions;
  Space();
  Target& target(int rank) { return targets_[static_cast<std::size_t>(rank)]; }
  NodeHandlerDescriptor serve_on_node_peers();
  Result<std::byte*> map_data(Target& target, const SpaceDescriptor& peer);
  bool map_peer(Target& target, const SpaceDescriptor& peer, std::string& why);
  void place_contiguously();
  void count(int target, Counted what, std::size_t bytes) const {
    if (!counting_) [[likely]] return;
    if (OperationCounts::Row* row = targets_[static_cast<std::size_t>(target)].counts)
      return counts_->add_here(*row, what, bytes);
    count_shared_row(target, what, bytes);
  }
  // Slow paths of put_at and get_at: counting, and sizes that copy_small does not copy. They are tail calls, so that
  // the fast paths need no frame.
  void put_at_slow(int target, std::byte* at, const void* origin, std::size_t bytes);
  void get_at_slow(int target, const std::byte* at, void* origin, std::size_t bytes) const;
  void count_shared_row(int target, Counted what, std::size_t bytes) const;
  void count_slow(BasicType type, const void* address, bool by_handler) const;
  Status operate(Target& target, const DataOperation& operation, Outstanding* own);
  Status operate_by_cma(Target& target, const DataOperation& operation);
  Status accumulate_by_cma(Target& target, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin,
                           void* fetched, std::size_t count);
  // The part of a range of a target's data that one key gives access to: all of it, unless a region ends before.
  struct Keyed {
    RemoteKey key;
    std::uint64_t offset = 0;   // from the start of the key's memory
    std::size_t bytes = 0;
  };
  // Operations over the fabric (space_fabric.cpp).
  Status operate_over_fabric(Target& target, const DataOperation& operation, Outstanding* own);
  bool coalesces(const AllOutstanding& all, bool atomic, bool in_burst) const;
  Status keep_coalesced(Target& target, std::unique_ptr<OperationList> list);
  static Status acquire_deferred_lock_first(AllOutstanding& all);
  void coalesce_again(AllOutstanding& all, Coalesced coalesced);
  Coalesced take_coalesced(AllOutstanding& all, bool even_nothing);
  // Ends what take_coalesced began. `sent`: the operations that were issued, whose memory is reused.
  void coalesced_sent(AllOutstanding& all, Coalesced sent);
  Status issue_coalesced(Target& target);
  Status issue_before_flush(Target& target);
  Status issue(Target& target, Outstanding& among, const DataOperation& operation);
  Status issue_parts(Target& target, Outstanding& among, const DataOperation& operation);
  Status issue_atomic(Target& target, Outstanding& among, const DataOperation& operation);
  Status issue_by_handler(Target& target, Outstanding& among, const DataOperation& operation);
  Status send_behind_coalesced(Target& target, Outstanding* own, std::unique_ptr<OperationList> list);
  Status send_list(Target& target, Pending& among, std::unique_ptr<OperationList> list);
  Status control_behind_coalesced(Target& target, Pending& pending, const ControlStep& step, std::uint64_t* fetched);
  Status complete(Target& target);
  // Returns whether aligned elements of the type are combined by CPU atomics, or as integers_ says once the space has
  // changed.
  bool may_take_atomics(BasicType type) const { return !always_locked_ && (!floats_locked_ || traits(type).cpu_adds); }
  AtomicMethod method(BasicType type, const void* address) const {
    return may_take_atomics(type) ? atomic_method(type, address) : AtomicMethod::kLocked;
  }
  // Returns whether the adapter executes accumulates of this type at this address. Then it does so for all ranks,
  // also for the owner and its on-node peers.
  bool by_nic(BasicType type, const void* address) const {
    return control_by_nic_ && (type == BasicType::kInt64 || type == BasicType::kUint64) &&
           method(type, address) == AtomicMethod::kAtomic;
  }
  // Returns an address with the alignment of this offset at the target. Mapped data have the same alignment in every
  // process; private data have one address.
  static const void* place_of(const Target& to, std::uint64_t offset) {
    return reinterpret_cast<const void*>(to.address != 0 ? to.address + offset
                                                         : offset);  // NOLINT(performance-no-int-to-ptr)
  }
  // Accumulates by the adapter (space_nic.cpp).
  Status atomic_by_nic(Target& target, Pending& among, const DataOperation& operation);
  Status combine_by_nic(Target& target, const DataOperation& operation);
  Status control_element(Target& target, Pending& among, ControlCall call, std::uint64_t offset,
                         const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched);
  void atomic_by_nic_at(int rank, const std::byte* at, DataOperation operation);
  AccumulateLockWord& accumulate_lock(const Target& target) const {
    return reinterpret_cast<Header*>(target.control)->accumulate_lock;
  }
  IntegerWords* integer_words(const Target& target) const {
    return reinterpret_cast<IntegerWords*>(target.control + control_bytes_ - sizeof(IntegerWords));
  }
  Status wait_for(Pending& pending);
  void await_end(const Pending& pending);  // leaves the error in `pending`
  Fabric& fabric() const;
  HandlerPlace handler_of(const Target& target) const {
    return {target.peer, target.region, static_cast<std::uint32_t>(rank_)};
  }
  Result<Keyed> keyed(const Target& target, std::uint64_t offset, std::size_t bytes);
  // Calls transfer(place, bytes done before, bytes) for each part of the range that has one key.
  template <class Transfer>
  Status by_keys(const Target& target, std::uint64_t offset, std::size_t bytes, Transfer&& transfer);
  // Requests a page of a target's table of regions, and waits for it.
  Status ask_for_regions(int rank, std::uint64_t first, std::span<std::byte> page);

  Process& process_;
  bool counting_;
  std::unique_ptr<OperationCounts> counts_;
  int rank_ = 0;
  std::size_t control_bytes_ = 0;
  Segment segment_;
  std::byte* data_ = nullptr;
  std::uint64_t data_bytes_ = 0;
  bool private_data_ = false;
  bool shared_ = false;
  bool contiguous_ = false;
  bool always_locked_ = false;         // every accumulate takes the accumulate lock: some rank uses CMA
  bool floats_locked_ = false;         // those of floating-point types take it: no rank uses the fabric
  bool all_support_membarrier_ = true;  // all ranks take part in global_membarrier()
  RelaxedFlag threaded_;
  IntegerMethod integers_;  // the method of other types where memory is mapped
  bool all_immediate_ = false;
  bool control_by_nic_ = false;        // the domain is nic: adapters change all control words, a rank's own too
  Stores stores_;
  std::vector<Target> targets_;
  std::mutex coalesced_mutex_;  // guards AllOutstanding
  std::unique_ptr<Regions> regions_;
  std::optional<std::uint64_t> served_by_node_handler_;  // the region's id there
  struct Exposed;                                        // registrations, and the message handler's region
  std::unique_ptr<Exposed> exposed_;
};

}  // namespace farside

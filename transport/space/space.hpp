// SPDX-License-Identifier: BSD-3-Clause
// Space: what the ranks of a group have made reachable to each other. Each rank contributes a control block (words
// for protocols) and data (allocated here, or private memory of the application). For every target one route is
// chosen when the space is made; operations then dispatch without searching.
//
// A rank's segment:   | header (nonce, accumulate lock, wake event) | control words ... | data, if allocated here |
//                     0                                64                  control_bytes, whole pages
//
// Making one takes four steps, between which the caller exchanges what they return among all ranks:
//   make -> map_peers(all SpaceDescriptors) -> [open_fabric -> connect(all FabricDescriptors)] -> finish
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

// What a rank tells the others about its memory. Plain bytes.
struct SpaceDescriptor {
  std::uint64_t nonce = 0;
  std::uint64_t nonce_address = 0;  // in the process's private memory, to try process_vm_readv on
  std::int32_t pid = 0;
  std::int32_t segment_fd = -1;
  std::uint64_t segment_bytes = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t data_address = 0;   // of private data, else 0
  std::int32_t data_fd = -1;        // private data in a file that peers can map (ShareableMemory), and where
  std::uint64_t data_offset = 0;
  NodeHandlerDescriptor handler;  // of private data that peers cannot map
  MemoryNeed memory;  // for the segment: the ranks look together whether there is so much (check_memory_needs)
  std::uint64_t membarrier = 0;  // 1: takes part in global_membarrier()
};

struct FabricDescriptor {
  FabricAddress address;
  RemoteKey control;
  RemoteKey data;
  std::uint64_t region = 0;         // of the handler
  std::uint64_t nic_atomics = 0;    // 1: its control words can be reached by atomics of adapters
  std::uint64_t serves = 1;         // 0: it has no handler
};

class Space {
  struct Header {
    std::uint64_t nonce;
    AccumulateLockWord accumulate_lock;
    WakeEvent wake_event;
    alignas(8) std::uint64_t origin_lock;  // of spaces without handlers (origin_lock.hpp)
  };

 public:
  static constexpr std::size_t kHeaderBytes = 64;  // control words begin behind the header
  static_assert(sizeof(Header) <= kHeaderBytes);

  struct Request {
    int rank = 0;
    int ranks = 1;
    std::size_t control_bytes = 0;  // with the header; the same on all ranks
    std::uint64_t data_bytes = 0;
    void* private_data = nullptr;   // null: allocate the data
    // Every rank loads from and stores to every other's data, whatever the routes of operations are.
    bool shared = false;
    // If not 0: the data of all ranks, so many bytes together, are one piece in the order of ranks, in the segment of
    // rank 0.
    std::uint64_t contiguous_bytes = 0;
    // No data but the regions that each rank attaches later (space/regions.hpp).
    bool dynamic = false;
    // Several threads of this process may be in operations at once.
    bool threaded = false;
  };
  static Result<std::unique_ptr<Space>> make(const Request& request);
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  ~Space();

  // `on-node peers`: whether some peer may be on this node; private data are then served by a thread
  // (handler/node_handler.hpp).
  SpaceDescriptor describe(bool on_node_peers = true);

  // What routes inside the node came out as; all ranks combine theirs by "or".
  struct Reach {
    bool needs_fabric = false;     // some peer is not reached inside the node
    bool uses_cma = false;         // some peer's data is reached by process_vm_readv/writev
    std::string why;               // of needs_fabric, for a message
    bool unshared = false;         // some peer's data, which were to be shared, could not be mapped; `why` says why
  };
  // same_node[r]: whether rank r may be on this node (MPI_Comm_split_type); a mapping must succeed as well.
  Reach map_peers(std::span<const SpaceDescriptor> peers, std::span<const char> same_node);

  // Only if some rank needs the fabric: all ranks take part. `among`: providers that all of them can use
  // (Process::usable_providers).
  Result<FabricDescriptor> open_fabric(Providers among = kAnyProvider);
  Status connect(std::span<const FabricDescriptor> peers, bool some_cma);
  // The last step, when all ranks have mapped what they need.
  void finish(bool some_cma);

  // From now on operations are counted by target, for who asks for them, and not in the process's statistics.
  OperationCounts& count_by_target(bool threaded);
  // From now on several threads may use this at once. None does now.
  void expect_threads();

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(targets_.size()); }
  std::byte* data() const { return data_; }
  // Of a dynamic space, else null.
  Regions* regions() const { return regions_.get(); }
  RouteKind route(int target) const { return targets_[static_cast<std::size_t>(target)].route; }
  // 0 in a dynamic space: regions are no data of a known size.
  std::uint64_t bytes(int target) const { return targets_[static_cast<std::size_t>(target)].bytes; }
  // Where operations on a target's data are loads and stores of this process, or null.
  std::byte* mapped(int target) const { return targets_[static_cast<std::size_t>(target)].data; }
  // Where the application loads and stores a target's data, or null; always there if the space is shared, but for data
  // of no bytes that lie by themselves.
  std::byte* address(int target) const {
    const Target& to = targets_[static_cast<std::size_t>(target)];
    return to.bytes > 0 || contiguous_ ? to.memory : nullptr;
  }

  // Operations on a target's data. Offsets are bytes in its data; the caller has checked the range. They return when
  // issued; local buffers stay in use until flush, but for operands of at most kCopiedAtCall bytes. Status: errors of
  // issuing. `own`: where they count, besides.
  Status put(int target, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own = nullptr);
  Status get(int target, std::uint64_t offset, void* origin, std::size_t bytes, Outstanding* own = nullptr);
  // The same where the target is mapped, at an address in its data.
  void put_at(int target, std::byte* at, const void* origin, std::size_t bytes) {
    if (counting_ || !copy_small(at, origin, bytes)) return put_at_slow(target, at, origin, bytes);
    stores_.made();
  }
  void get_at(int target, const std::byte* at, void* origin, std::size_t bytes) const {
    if (counting_ || !copy_small(origin, at, bytes)) get_at_slow(target, at, origin, bytes);
  }
  // Of a mapped target: `bytes` were put or got there by the caller's own loads and stores.
  void moved(int target, Counted what, std::size_t bytes) {
    count(target, what, bytes);
    if (what == Counted::kPut) stores_.made();
  }
  // Whether others may access the target's data meanwhile, or nobody (an exclusive lock is held, and this process has
  // one thread): then nothing need be atomic.
  enum class Access : std::uint8_t { kShared, kAlone };
  // Element-wise atomic. `fetched` may be null.
  Status accumulate(int target, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                    std::size_t count, Access access = Access::kShared, Outstanding* own = nullptr);
  void accumulate_at(int target, std::byte* at, ReduceOp op, BasicType type, const void* origin, void* fetched,
                     std::size_t count, Access access = Access::kShared);
  // `rows` times `count` elements, at distances of their own; what is fetched lies as the origin's do.
  void accumulate_rows_at(int target, std::byte* at, std::ptrdiff_t stride, ReduceOp op, BasicType type,
                          const std::byte* origin, std::byte* fetched, std::ptrdiff_t origin_stride, std::size_t count,
                          std::size_t rows, Access access);
  Status compare_and_swap(int target, std::uint64_t offset, BasicType type, const void* origin, const void* compare,
                          void* fetched);
  void compare_and_swap_at(int target, std::byte* at, BasicType type, const void* origin, const void* compare,
                           void* fetched);
  // All operations towards the target have completed there; the first error among them.
  Status flush(int target);
  // Whether operations towards the target are complete when they return: then drain_stores() is all that a flush does,
  // and whoever gives a mapped lock back by an atomic need not even do that.
  bool immediate(int target) const { return route(target) != RouteKind::kFabric; }
  // Whether this is so for all targets; then their control words are mapped, too.
  bool all_immediate() const { return all_immediate_; }
  void drain_stores() { stores_.drain(); }
  // For operations that are to be followed by themselves; null where they are complete when they return.
  std::unique_ptr<Outstanding> own_outstanding(int target);
  // Nobody follows them any longer: their errors are for a flush of the target.
  void abandon(int target, std::unique_ptr<Outstanding> own);
  // Many operations in a row that are the pieces of one (fragments.hpp).
  class Fragments;
  void stores_drained_by_atomic() { stores_.drained_by_atomic(); }
  Status flush_all();

  // Waits for what a control fetch-add towards the target would overtake if it were issued next: everything, unless the
  // route orders it behind some or carries it along. For the atomic that says that the operations are over (a lock's
  // release, complete's notice); the operations themselves are over after a flush, as ever.
  Status order_before_release(int target);
  // Such an atomic will follow the operations on this target that come next: small ones may wait for it and travel in
  // one message with it. A flush ends the expectation: whoever flushes waits anyway.
  void expect_release(int target) {
    AllOutstanding* const all = this->target(target).outstanding.get();
    if (all == nullptr) return;
    const std::scoped_lock held(coalesced_mutex_);
    all->release_expected = true;
  }

  // A lock of the target, asked for by a process with one thread, that is not taken yet, so that it can travel with the
  // operations of its epoch: they wait for it, and with the first one that cannot wait it is taken before, by `take`.
  // It ends by that, or:
  bool may_defer_lock(int target) const;
  void defer_lock(int target, std::function<Status()> take);
  // Whoever put it off takes it now: what was coalesced waits on, and what is done here does not carry it along.
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
  // The acquire step takes it, what was coalesced is carried out, the release step gives it back: one message, which is
  // waited for. If the opening stops it, the lock is still to be taken (its ticket is taken), and what was coalesced is
  // in the result.
  Status execute_locked(int target, const ControlStep& acquire_step, const ControlStep& release_step,
                        LockedResult& result);
  // What was stopped waits for the release of the lock, which has been taken now.
  void coalesce_again(int target, std::unique_ptr<OperationList> list);

  // Control words: `word` is a byte offset, from 64, in the target's segment. See ControlMemory.
  std::uint64_t* control_word(int target, std::uint32_t word) const {
    if (control_by_nic_) return nullptr;
    std::byte* control = targets_[static_cast<std::size_t>(target)].control;
    return control == nullptr ? nullptr : reinterpret_cast<std::uint64_t*>(control + word);
  }
  // This rank's own, to be looked at; changed by whoever has the atomicity domain (control_word, else control).
  std::uint64_t* own_control_word(std::uint32_t word) const {
    return reinterpret_cast<std::uint64_t*>(segment_.mapping.base() + word);
  }
  // After a control word of a mapped target was changed: wakes it if it sleeps. Its own wake event is signalled by
  // others.
  void wake(int target) const {
    std::byte* control = targets_[static_cast<std::size_t>(target)].control;
    reinterpret_cast<Header*>(control)->wake_event.wake_if_armed();
  }
  WakeEvent& wake_event() const { return reinterpret_cast<Header*>(segment_.mapping.base())->wake_event; }
  // For targets whose control block is not mapped. `operand`, `compare` and `fetched` stay in use until `pending`
  // is done.
  Status control(ControlCall call, int target, std::uint32_t word, Pending& pending, const std::uint64_t* operand,
                 const std::uint64_t* compare, std::uint64_t* fetched);

 private:
  struct Target {
    RouteKind route = RouteKind::kFabric;
    std::byte* data = nullptr;         // when mapped
    std::byte* memory = nullptr;       // the same, or of a shared space that the fabric serves
    std::byte* control = nullptr;      // when mapped
    std::uint64_t bytes = 0;
    OperationCounts::Row* counts = nullptr;  // where they are counted by the one thread there is
    std::uint64_t address = 0;         // of private data, in its process; of contiguous data, here
    std::int32_t pid = 0;
    Peer peer = 0;
    RemoteKey control_key, data_key;
    std::uint64_t region = 0;
    Mapping mapping;
    Mapping data_mapping;              // of data in a file of their own
    std::unique_ptr<PeerNodeHandler> handler;            // where pieces are moved by it: cma
    std::unique_ptr<AllOutstanding> outstanding;         // null where nothing ever is
  };

  // How much is combined under the accumulate lock at a time.
  static constexpr std::size_t kLockedBytes = 16384;
  // What waits for others to travel with: more would rather be moved by RDMA, in parallel. Ahead of a release a larger
  // one pays, too, as it saves a round trip.
  static constexpr std::size_t kMostCoalesced = 2048;
  static constexpr std::size_t kMostBeforeRelease = 4096;
  static_assert(kMostCoalesced <= OperationList::kMostInOne && kMostBeforeRelease <= OperationList::kMostInOne);
  // Lists under way towards one target at most: they hold copies.
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
  // Counted, or of any size; with nothing left to do behind them, so that their callers need no frame.
  void put_at_slow(int target, std::byte* at, const void* origin, std::size_t bytes);
  void get_at_slow(int target, const std::byte* at, void* origin, std::size_t bytes) const;
  void count_shared_row(int target, Counted what, std::size_t bytes) const;
  void count_slow(BasicType type, const void* address, bool by_handler) const;
  Status operate(Target& target, const DataOperation& operation, Outstanding* own);
  Status operate_by_cma(Target& target, const DataOperation& operation);
  Status accumulate_by_cma(Target& target, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin,
                           void* fetched, std::size_t count);
  // What one key gives access to, of `bytes` of a target's data: all of them, but for regions that end before.
  struct Keyed {
    RemoteKey key;
    std::uint64_t offset = 0;   // from where the key's memory begins
    std::size_t bytes = 0;
  };
  // Operations over the fabric (space_fabric.cpp).
  Status operate_over_fabric(Target& target, const DataOperation& operation, Outstanding* own);
  bool coalesces(const AllOutstanding& all, bool atomic, bool in_burst) const;
  Status keep_coalesced(Target& target, std::unique_ptr<OperationList> list);
  static Status acquire_deferred_lock_first(AllOutstanding& all);
  void coalesce_again(AllOutstanding& all, Coalesced coalesced);
  Coalesced take_coalesced(AllOutstanding& all, bool even_nothing);
  // Ends the turn. `sent`: what was issued.
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
  // Whether elements of the type that are aligned are combined by CPU atomics (or, once the space has changed, as
  // integers_ says).
  bool may_take_atomics(BasicType type) const { return !always_locked_ && (!floats_locked_ || traits(type).cpu_adds); }
  AtomicMethod method(BasicType type, const void* address) const {
    return may_take_atomics(type) ? atomic_method(type, address) : AtomicMethod::kLocked;
  }
  // Whether accumulates of this type there are the adapter's: then everybody's are, the owner's and its on-node peers'
  // too.
  bool by_nic(BasicType type, const void* address) const {
    return control_by_nic_ && (type == BasicType::kInt64 || type == BasicType::kUint64) &&
           method(type, address) == AtomicMethod::kAtomic;
  }
  // Where data begins at the target, as far as its alignment is concerned: all data begins at the same one in every
  // process that maps it, and private data has one address.
  static const void* place_of(const Target& to, std::uint64_t offset) {
    return reinterpret_cast<const void*>(to.address != 0 ? to.address + offset
                                                         : offset);  // NOLINT(performance-no-int-to-ptr)
  }
  // By the adapter (space_nic.cpp).
  Status atomic_by_nic(Target& target, Pending& among, const DataOperation& operation);
  Status combine_by_nic(Target& target, const DataOperation& operation);
  Status control_element(Target& target, Pending& among, ControlCall call, std::uint64_t offset,
                         const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched);
  void atomic_by_nic_at(int rank, const std::byte* at, DataOperation operation);
  // By their origin, where there are no handlers (space_origin.cpp).
  Status combine_by_origin(Target& target, const DataOperation& operation);
  Status combine_part_by_origin(Target& target, const DataOperation& part);
  void combine_by_origin_at(int rank, const std::byte* at, DataOperation operation);
  Status step_on_origin_lock(Target& target, Pending& among, ControlCall call, std::uint64_t operand,
                             std::uint64_t* fetched);
  Status take_origin_lock(Target& target, std::uint32_t& ticket);
  Status release_origin_lock(Target& target, std::uint32_t ticket);
  Status read_part(Target& target, std::uint64_t offset, std::byte* into, std::size_t bytes);
  Status write_part(Target& target, std::uint64_t offset, const std::byte* from, std::size_t bytes);
  AccumulateLockWord& accumulate_lock(const Target& target) const {
    return reinterpret_cast<Header*>(target.control)->accumulate_lock;
  }
  IntegerWords* integer_words(const Target& target) const {
    return reinterpret_cast<IntegerWords*>(target.control + control_bytes_ - sizeof(IntegerWords));
  }
  Status wait_for(Pending& pending);
  void await_end(const Pending& pending);  // its error is not taken
  Fabric& fabric() const;
  HandlerPlace handler_of(const Target& target) const {
    return {target.peer, target.region, static_cast<std::uint32_t>(rank_)};
  }
  Result<Keyed> keyed(const Target& target, std::uint64_t offset, std::size_t bytes);
  // Calls transfer(place, bytes done before, bytes) until all is done.
  template <class Transfer>
  Status by_keys(const Target& target, std::uint64_t offset, std::size_t bytes, Transfer&& transfer);
  // A page of a target's table of regions (Regions).
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
  bool floats_locked_ = false;         // those of floating-point types do: no rank uses the fabric
  bool all_support_membarrier_ = true;  // all ranks take part in global_membarrier()
  RelaxedFlag threaded_;
  IntegerMethod integers_;  // how those of other types are combined where memory is mapped
  bool all_immediate_ = false;
  bool by_origin_ = false;  // there are no handlers: accumulates that are not the adapter's are their origin's
  bool control_by_nic_ = false;        // of all ranks, by all ranks, their own too: the domain is nic
  Stores stores_;
  std::vector<Target> targets_;
  std::mutex coalesced_mutex_;  // of AllOutstanding
  std::unique_ptr<Regions> regions_;
  std::optional<std::uint64_t> served_by_node_handler_;  // the region there
  struct Exposed;                                        // registrations and the handler's region
  std::unique_ptr<Exposed> exposed_;
};

}  // namespace farside

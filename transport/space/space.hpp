// SPDX-License-Identifier: BSD-3-Clause
// Space: the memory that the ranks of a group have made reachable to each other. Each rank contributes a control block
// (words for protocols) and data (allocated here, or private memory of the application). The ranks of this node, and
// the others as they are reached, are targets; each has one route.
//
// A rank's control block:   | header: accumulate lock, wake event, integer words | control words ... | region words |
//                           0                                                    576                     whole pages
//
// A space is made in three steps. Between them the ranks of the group agree (pmpi/window/creation.cpp):
//
//   make (collective over the node)  ->  [open_fabric, if some rank needs it]  ->  finish
//
// No memory grows with the number of ranks, except two bits of shared memory per rank in the control words of epochs/,
// whose pages are allocated at their first use, and in dynamic spaces one bit per rank (RegionWords).
//
// Thread safety: with Request::threaded or after expect_threads(), several threads may be in operations, flushes and
// control calls at once; the steps above are for one thread, and deferred locks for processes with one thread.
//
// Errors: an operation's Status has the errors of issuing; flush returns later ones. kPeer: a peer is lost, or an
// operation failed; kRange: the memory is not attached, or the target's handler refused; kNoMemory. Making a space
// also returns kNoRoute and kBadSetting.
//
// Cost: node/on-node.md. Memory: 32 bytes per rank of this node, and those of FabricTargets per
// rank that was reached over the fabric.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/result.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/data/reduce_op.hpp"
#include "transport/node/accumulate_lock.hpp"
#include "transport/node/identity.hpp"
#include "transport/node/integer_method.hpp"
#include "transport/node/node_group.hpp"
#include "transport/node/node_segment.hpp"
#include "transport/process.hpp"
#include "transport/routes/cma_route.hpp"
#include "transport/routes/fabric_route.hpp"
#include "transport/routes/node_targets.hpp"

namespace farside {

class Regions;

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

class Space {
  struct Header {
    std::uint64_t nonce;  // of the segment, in the first control block (node/node_segment.hpp)
    AccumulateLockWord accumulate_lock;
    WakeEvent wake_event;
    ProcessIdentity owner;
    IntegerWords integers;
  };

 public:
  static constexpr std::size_t kHeaderBytes = 576;  // control words follow the header
  static_assert(sizeof(Header) <= kHeaderBytes);

  struct Request {
    int rank = 0;
    int ranks = 1;
    std::uint64_t id = 0;           // random, and equal on all ranks
    std::size_t control_bytes = 0;  // includes the header; equal on all ranks
    std::uint64_t data_bytes = 0;
    void* private_data = nullptr;  // null: allocate the data
    std::uint32_t unit = 0;        // a number that origins learn together with the bytes of the data
    // Every rank maps every other rank's data for loads and stores, whatever the routes of operations are. All ranks
    // must be members of the node.
    bool shared = false;
    // Of a shared space: this rank wants the data of all ranks to lie contiguously in rank order. They do if at least
    // one rank wants this.
    bool contiguous = false;
    // Allocated data begin at multiples of this power of two in all mappings. The largest alignment that a rank of the
    // node wants applies to all ranks of the node. Of contiguous data, only the data of the first rank are aligned.
    std::uint64_t alignment = 1;
    // The data of this rank may be larger than the free memory.
    bool overcommit = false;
    // The only data are the regions that ranks attach later (space/regions.hpp).
    bool dynamic = false;
    // Several threads of this process may be in operations at once.
    bool threaded = false;
    // Accumulates will be of single elements, by operations that adapters have. If all ranks say so, adapters with
    // atomics combine 64-bit integers; otherwise the handler and CPUs do (AccumulateRules::choose_domains).
    bool single_elements = false;
  };
  // Collective over the members of the node, even after an error of one member. The others then get an error of the
  // same kind without a text, since the failed member reports the reason.
  static Result<std::unique_ptr<Space>> make(const Request& request, NodeGroup& node);
  // Takes part in make() for a rank that makes no space: the others get an error of this kind.
  static void decline(ErrorKind why, NodeGroup& node, Progress& progress);
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  ~Space();

  // The result of make() on this rank; the ranks combine their results by "or".
  struct Reach {
    bool needs_fabric = false;   // some peer has no route inside the node
    bool some_unmapped = false;  // some on-node peer has the route fabric
    bool uses_cma = false;       // some peer has the route cma
    std::string why;             // the reason of needs_fabric or unshared, for a message; empty after finish()
    bool unshared = false;       // the space is shared, and some peer's data could not be mapped
  };
  Reach reach() const {
    return {needs_fabric_, some_unmapped_, uses_cma_, why_ != nullptr ? *why_ : std::string(), unshared_};
  }

  // Makes the memory accessible over the endpoint. If some rank needs the fabric, all ranks call this. `some_cma`: some
  // rank uses cma. Errors: those of FabricRoute::register_memory().
  Result<EndpointUse> open_fabric(Endpoint& endpoint, bool some_cma);
  // Reverts open_fabric(). Precondition: finish() was not called.
  void close_fabric() { fabric_.reset(); }
  // What the ranks have agreed on. The members that follow some_unmapped concern spaces that need the fabric.
  struct Agreed {
    bool some_cma = false;         // some rank uses cma
    bool some_unmapped = false;    // some rank reaches an on-node peer by the fabric
    PeerAddresses addresses;       // of all ranks
    EndpointUse use;               // what all ranks can use
    bool single_elements = false;  // all ranks have set Request::single_elements
    bool same_bytes = false;       // all ranks have the same Request::data_bytes
    bool same_units = false;
    int lowest_with_data = -1;  // the lowest rank whose Request::data_bytes is above 0
  };
  // Precondition: all ranks have made their memory and their regions accessible.
  void finish(Agreed agreed);

  // Returns whether halves of large transfers go by second rails (fabric/second_rail.hpp).
  bool uses_second_rail() const { return fabric_ != nullptr && fabric_->uses_second_rail(); }

  // From now on operations are counted by target in the returned object, and not in the process's statistics.
  OperationCounts& count_by_target(bool threaded);
  // From now on several threads may use the space at once. Precondition: no thread is in an operation.
  void expect_threads();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::byte* data() const { return data_; }
  // Null unless the space is dynamic.
  Regions* regions() const { return regions_.get(); }
  RouteKind route(int target) const {
    const NodeTarget* const here = node_.find(target);
    if (here == nullptr) return RouteKind::kFabric;
    return target == rank_ ? RouteKind::kSelf : node_.route(*here);
  }
  // Returns whether some rank other than this one (or, in a space of one rank, this one) has the route.
  bool uses(RouteKind route) const;
  // The endpoint by which the fabric reaches its targets; null if no rank needs it.
  const Endpoint* endpoint() const { return fabric_ != nullptr ? &fabric_->endpoint() : nullptr; }

  // The bytes of a rank's data, 0 in a dynamic space, and its unit. One round trip at the first call for a rank on
  // another node, if the ranks differ in them; then nothing. Errors: kPeer.
  using Extent = FabricRoute::Extent;
  Result<Extent> extent(int target);
  // The target if operations on its data are loads and stores of this process (self, mapped), or null.
  const NodeTarget* mapped_target(int target) const {
    const NodeTarget* const here = node_.find(target);
    return here != nullptr && here->data != nullptr ? here : nullptr;
  }
  std::span<const NodeTarget> consecutive_targets() const { return node_.consecutive(); }
  // The same for the fast path: null also for some placements of ranks (NodeTargets::find_regular).
  const NodeTarget* fast_target(int target) const {
    const NodeTarget* const here = node_.find_regular(target);
    return here != nullptr && here->data != nullptr ? here : nullptr;
  }
  std::byte* mapped(int target) const {
    const NodeTarget* const here = node_.find(target);
    return here != nullptr ? here->data : nullptr;
  }
  // A rank's data where the application of this process may load and store them, whatever the route of operations is.
  // `base` is null and `bytes` is 0 if this process does not map them: data of a rank on another node, and private
  // memory of an on-node peer. `base` is also null if there are no bytes, unless the data are contiguous with others.
  struct MappedData {
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t unit = 1;  // the rank's, if it is on this node
  };
  MappedData mapped_data(int target) const;
  // Returns the lowest rank of all, on any node, whose Request::data_bytes is above 0; -1 if there is none.
  int lowest_rank_with_data() const { return lowest_with_data_; }

  // Operations on a target's data. Offsets are bytes in its data; the caller has checked the range. An operation
  // returns when it is issued or kept. Local buffers stay in use until flush, except operands of at most
  // kCopiedAtCall bytes. `own` (see own_outstanding) counts the operation as well, and receives its errors.
  Status put(int target, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own = nullptr);
  Status get(int target, std::uint64_t offset, void* origin, std::size_t bytes, Outstanding* own = nullptr);
  // The same on a mapped target, at an address in its data: complete when they return.
  [[gnu::always_inline]] void put_at(const NodeTarget& target, std::byte* at, const void* origin, std::size_t bytes) {
    if (counting_ || !copy_small(at, origin, bytes)) return put_at_slow(target, at, origin, bytes);
    Stores::here().made();
  }
  [[gnu::always_inline]] void get_at(const NodeTarget& target, const std::byte* at, void* origin,
                                     std::size_t bytes) const {
    if (counting_ || !copy_small(origin, at, bytes)) get_at_slow(target, at, origin, bytes);
  }
  // Counts `bytes` that the caller has put to or got from a mapped target by its own loads and stores.
  void moved(int target, Counted what, std::size_t bytes) {
    count(*node_.find(target), what, bytes);
    if (what == Counted::kPut) Stores::here().made();
  }
  // kAlone: no other process or thread accesses the target's data meanwhile (this process holds an exclusive lock and
  // has one thread), so that plain loops suffice.
  enum class Access : std::uint8_t { kShared, kAlone };
  // Atomic per element. `fetched` may be null.
  Status accumulate(int target, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                    std::size_t count, Access access = Access::kShared, Outstanding* own = nullptr);
  void accumulate_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type, const void* origin,
                     void* fetched, std::size_t count, Access access = Access::kShared);
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
  // Accumulates `rows` rows of `count` elements. `stride` and `origin_stride` are in bytes; fetched rows have the
  // origin's stride.
  void accumulate_rows_at(const NodeTarget& target, std::byte* at, std::ptrdiff_t stride, ReduceOp op, BasicType type,
                          const std::byte* origin, std::byte* fetched, std::ptrdiff_t origin_stride, std::size_t count,
                          std::size_t rows, Access access);
  Status compare_and_swap(int target, std::uint64_t offset, BasicType type, const void* origin, const void* compare,
                          void* fetched);
  void compare_and_swap_at(const NodeTarget& target, std::byte* at, BasicType type, const void* origin,
                           const void* compare, void* fetched);
  // Waits until all operations towards the target are complete there; returns the first error among them.
  Status flush(int target) {
    Status kept = complete_puts(target);
    Status status = fabric_ != nullptr ? fabric_->flush(target) : Status();
    drain_stores();
    return kept ? std::move(status) : std::move(kept);
  }
  Status flush_all() {
    Status kept = cma_.complete();
    Status status = fabric_ != nullptr ? fabric_->flush_all() : Status();
    drain_stores();
    return kept ? std::move(status) : std::move(kept);
  }
  // As put(), but a small put to private memory of an on-node peer may be kept (CmaRoute): until a flush or
  // order_before_release(); or until the end of an epoch that the target awaits (active target synchronization, MPI 4.0
  // section 12.5). In that case it takes effect in the target's finish_puts(), and the origin calls release_puts()
  // before it notifies the target of the end.
  Status put_kept(int target, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own,
                  CmaRoute::Keep until);
  // Whether such puts may exist, of this rank or towards it. Then flushes and releases have more to do than
  // immediate() says.
  bool may_keep_puts() const { return may_keep_puts_; }
  bool keeps_puts() const { return cma_.keeps_any(); }
  Status release_puts() { return cma_.release(); }
  Status complete_puts(int target) {
    if (!cma_.keeps_any()) return {};
    NodeTarget* const here = node_.find(target);
    NodeTargetExtra* const extra = here != nullptr ? node_.extra(*here) : nullptr;
    return extra != nullptr ? cma_.complete(*extra) : Status();
  }
  // Leaves an error to the next call of release_puts(), complete_puts() or a flush.
  void report_puts_later(Status error) { cma_.report_later(std::move(error)); }
  // Three loads if nothing was posted.
  void finish_puts() const {
    if (node_handler_ != nullptr) [[unlikely]]
      node_handler_->finish_posted();
  }
  // Returns whether operations towards the target, but for kept puts, are complete when they return. Then a flush is
  // only complete_puts() and drain_stores(), and an atomic that releases a mapped lock replaces the latter.
  bool immediate(int target) const { return all_immediate_ || route(target) != RouteKind::kFabric; }
  // The same for the fast path: false also for some placements of ranks (NodeTargets::find_regular).
  bool fast_immediate(int target) const { return all_immediate_ || fast_target(target) != nullptr; }
  // Returns whether this holds for all targets; then all control words are mapped, too.
  bool all_immediate() const { return all_immediate_; }
  void drain_stores() { Stores::here().drain(); }
  void stores_drained_by_atomic() { Stores::here().drained_by_atomic(); }
  // Returns a counter for request-based operations on the target; null where operations are complete, or kept with a
  // copy of their operand, when they return. Errors: kPeer.
  Result<std::unique_ptr<Outstanding>> own_outstanding(int target) {
    if (immediate(target)) return std::unique_ptr<Outstanding>();
    return fabric_->own_outstanding(target);
  }
  // Abandons the operations of `own`: a flush of the target returns their errors.
  void abandon(int target, std::unique_ptr<Outstanding> own) {
    if (own != nullptr) fabric_->abandon(target, std::move(own));
  }
  // The fragments of one operation (fragments.hpp).
  class Fragments;

  // Waits for the operations that a control fetch-add towards the target would overtake if it were issued next. To be
  // called before the fetch-add that ends an epoch (a lock's release, complete's notification). Unlike a flush it does
  // not complete operations.
  Status order_before_release(int target) {
    Status kept = complete_puts(target);
    Status status = fabric_ != nullptr ? fabric_->order_before_release(target) : Status();
    return kept ? std::move(status) : std::move(kept);
  }
  // Announces such a fetch-add: small operations on this target are coalesced until it is issued, and travel in one
  // message with it. A flush of the target withdraws the announcement.
  void expect_release(int target) {
    if (!immediate(target)) fabric_->expect_release(target);
  }
  // In a space of two ranks, returns the other rank if all accesses to its data by this rank go over the fabric, and
  // messages to its handler carry control steps. Otherwise returns -1.
  int only_peer() const {
    return ranks_ == 2 && !shared_ && words_changed_by_cpu() && !immediate(1 - rank_) ? 1 - rank_ : -1;
  }
  // See FabricRoute::post_received().
  void post_received(int target) {
    if (!immediate(target)) fabric_->post_received(target);
  }

  // Defers a lock of the target in a process with one thread, so that the lock can travel with the operations of its
  // epoch. The operations are coalesced behind the lock; before the first one that cannot wait, `take` takes the
  // lock. The deferral ends by `take`, or by one of the following calls. Not in a dynamic space: if memory was detached
  // meanwhile, the handler would not execute the release step. Not where this process maps the target's data: the lock
  // may protect loads and stores (MPI 4.1 section 12.5.3).
  bool may_defer_lock(int target) const {
    return !immediate(target) && !mapped_control(target) && !shared_ && fabric_->may_defer_lock();
  }
  Status defer_lock(int target, TargetOrder::Acquire take) { return fabric_->defer_lock(target, std::move(take)); }
  // Ends the deferral: `take` takes the lock by itself, while the coalesced operations stay coalesced.
  template <class Take>
  auto acquire_deferred_lock(int target, Take&& take) {
    return fabric_->acquire_deferred_lock(target, std::forward<Take>(take));
  }
  // Sends one message with the acquire step, the coalesced operations and the release step, and waits for its reply.
  // If the acquire step stops it, only the ticket is taken: the caller must wait for the lock, and the result has the
  // coalesced operations.
  Status execute_locked(int target, const ControlStep& acquire_step, const ControlStep& release_step,
                        LockedResult& result) {
    return fabric_->execute_locked(target, acquire_step, release_step, result);
  }
  // Coalesces the operations of such a result again. The caller now holds the lock, and the operations travel with its
  // release.
  void keep_again(int target, std::unique_ptr<OperationList> list) { fabric_->keep_again(target, std::move(list)); }

  // A control block that is mapped, and whose words CPU atomics change; or none.
  class MappedControl {
   public:
    explicit MappedControl(std::byte* begin) : begin_(begin) {}
    explicit operator bool() const { return begin_ != nullptr; }
    // `offset`: in bytes from the start of the control block, at least kHeaderBytes.
    std::uint64_t& word(std::uint32_t offset) const { return *reinterpret_cast<std::uint64_t*>(begin_ + offset); }
    // Wakes the owner if it sleeps; called after a change of the words.
    void wake() const { reinterpret_cast<Header*>(begin_)->wake_event.wake_if_armed(); }

   private:
    std::byte* begin_;
  };
  MappedControl mapped_control(int target) const {
    const NodeTarget* const here = node_.find(target);
    return MappedControl(here != nullptr && !rules_.by_nic ? here->control : nullptr);
  }
  // The same for words that CPU atomics change in either domain.
  MappedControl node_control(int rank) const {
    const NodeTarget* const here = node_.find(rank);
    return MappedControl(here != nullptr ? here->control : nullptr);
  }
  // The rank of this node that a target, whose control words are not mapped, selects: the same on all ranks of the
  // node. -1 if there is no other rank, or if some control block of the node is not mapped.
  int near_home(int target) const {
    if (!node_mapped_ || mapped_control(target)) return -1;
    return node_.all()[static_cast<std::size_t>(target) % node_.size()].rank;
  }
  // The same as mapped_control() for the fast path: null also where operations towards the target are not complete when
  // they return, and for some placements of ranks (NodeTargets::find_regular).
  std::uint64_t* fast_control_word(int target, std::uint32_t word) const {
    const NodeTarget* const here = node_.find_regular(target);
    if (here == nullptr || here->control == nullptr || rules_.by_nic) return nullptr;
    if (!all_immediate_ && target != rank_ && node_.route(*here) == RouteKind::kFabric) return nullptr;
    return reinterpret_cast<std::uint64_t*>(here->control + word);
  }
  // Returns whether CPU atomics change control words, own ones included: the domain cpu.
  bool words_changed_by_cpu() const { return !rules_.by_nic; }
  // Returns whether all ranks' control words are mapped, and CPU atomics change them.
  bool all_words_mapped() const { return all_words_mapped_; }
  // Returns whether the control words of on-node peers are mapped, the same on all ranks. (A rank may still have to go
  // over the fabric to some of them.)
  bool words_mapped_in_nodes() const { return process_.settings().value()->mapped && !rules_.by_nic; }
  // Returns this rank's own word. In the domain nic it is only for reading, and changes go through control().
  std::uint64_t* own_control_word(std::uint32_t word) const {
    return reinterpret_cast<std::uint64_t*>(control_ + word);
  }
  WakeEvent& wake_event() const { return reinterpret_cast<Header*>(control_)->wake_event; }
  // Issues a step on a control word that is not in a mapped_control(): one message, or one operation of the adapter.
  // `operand` and `compare` are copied; `fetched` stays in use until `pending` is done.
  Status control(ControlCall call, DataAccess access, int target, std::uint32_t word, Pending& pending,
                 const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched) {
    return fabric_->control(call, access, target, word, pending, operand, compare, fetched);
  }
  // The same for a fetch-add or a write as a notification (FabricRoute::notify).
  Status notify(ControlCall call, DataAccess access, int target, std::uint32_t word, Pending& pending,
                const std::uint64_t* operand, std::uint64_t* fetched) {
    return fabric_->notify(call, access, target, word, pending, operand, fetched);
  }
  // Interruptions: the ends of connections by which notifications of peers may have been lost (Endpoint). A wait for a
  // notification ends with an error if the connection to the sender was interrupted after the earliest moment at which
  // the sender could have sent the notification. Two loads.
  std::uint32_t interruptions() const { return fabric_ != nullptr ? fabric_->endpoint().interruptions() : 0; }
  // See FabricRoute. Three loads if there was no later interruption.
  std::uint32_t first_interruptions() const { return fabric_ != nullptr ? fabric_->first_interruptions() : 0; }
  bool interrupted_since(int rank, std::uint32_t interruptions) const {
    return fabric_ != nullptr && !mapped_control(rank) && fabric_->interrupted_since(rank, interruptions);
  }
  bool interrupted_since_post(int rank) const {
    return fabric_ != nullptr && !mapped_control(rank) && fabric_->interrupted_since_post(rank);
  }
  // See FabricRoute::lost_notifications().
  std::uint32_t lost_notifications(int target) const {
    return fabric_ != nullptr && !mapped_control(target) ? fabric_->lost_notifications(target) : 0;
  }
  // Null until open_fabric().
  const FabricRoute* fabric_route() const { return fabric_.get(); }

  // For reports of long waits. Returns the process of a rank of this node whose control words are mapped; otherwise the
  // identity is unknown.
  ProcessIdentity process_of(int rank) const {
    const NodeTarget* const here = node_.find(rank);
    return here != nullptr && here->control != nullptr ? reinterpret_cast<const Header*>(here->control)->owner
                                                       : ProcessIdentity();
  }
  // Whether operations have reached the rank over the fabric. Another one may have to be connected first.
  bool reached_by_fabric(int rank) const { return fabric_ != nullptr && fabric_->targets().find(rank) != nullptr; }
  // Whether a control word of the rank can be read over the fabric without a wait for earlier operations.
  bool may_read_by_fabric(int rank) { return fabric_ != nullptr && fabric_->may_read_control_word(rank); }
  // Requests a connection to the rank, where it is reached over the fabric (Endpoint::reach).
  Endpoint::Reach reach_over_fabric(int rank) {
    return fabric_ != nullptr ? fabric_->reach_over_fabric(rank) : Endpoint::Reach();
  }
  // Returns the ranks that have not acknowledged all operations over the fabric.
  std::vector<int> unacknowledged() { return fabric_ != nullptr ? fabric_->unacknowledged() : std::vector<int>(); }

 private:
  struct Offer;
  friend class Regions;
  explicit Space(const Request& request);
  static Result<std::unique_ptr<Space>> make_here(std::unique_ptr<Space> space, const Request& request, NodeGroup& node,
                                                  NodeGroup& mapped);
  Offer offer(const Request& request, NodeGroup& node, Status& failed);
  Status check_offers(const NodeGroup& node, std::span<const Offer> offers) const;
  HugePages huge_pages() const;
  NodeSegment::Layout layout(std::span<const Offer> offers) const;
  void take_memory(const Request& request, NodeGroup& node, std::span<const Offer> offers, NodeSegment segment);
  void find_routes(NodeGroup& node, std::span<const Offer> offers);
  bool find_route(NodeTarget& target, const NodeMember& member, const Offer& offer, std::byte*& memory,
                  std::string& why);
  MessageHandler::ServedSpace served_space(bool always_locked);
  void count(const NodeTarget& target, Counted what, std::size_t bytes) const {
    if (!counting_) [[likely]]
      return;
    const NodeTargetExtra* const extra = node_.extra(target);
    if (extra != nullptr && extra->counts != nullptr) return counts_->add_here(*extra->counts, what, bytes);
    count_slow_row(target.rank, what, bytes);
  }
  void count(int target, Counted what, std::size_t bytes) const {
    if (!counting_) [[likely]]
      return;
    count_slow_row(target, what, bytes);
  }
  // Slow paths of put_at and get_at: counting, and sizes that copy_small does not copy. They are tail calls, so that
  // the fast paths need no frame.
  void put_at_slow(const NodeTarget& target, std::byte* at, const void* origin, std::size_t bytes);
  void get_at_slow(const NodeTarget& target, const std::byte* at, void* origin, std::size_t bytes) const;
  void count_slow_row(int target, Counted what, std::size_t bytes) const;
  void count_slow(BasicType type, const void* address) const { rules_.count_slow(counts_.get(), type, address, false); }
  // For a target that is not mapped; `here` is null for one of another node.
  Status operate(int target, NodeTarget* here, const DataOperation& operation, Outstanding* own) {
    NodeTargetExtra* const extra = here != nullptr ? node_.extra(*here) : nullptr;
    return extra != nullptr && extra->address != 0 ? cma_.operate(*extra, operation)
                                                   : fabric_->operate(target, operation, own);
  }
  void atomic_by_nic_at(const NodeTarget& target, const std::byte* at, DataOperation operation);
  AccumulateLockWord& accumulate_lock(const NodeTarget& target) const {
    return reinterpret_cast<Header*>(target.control)->accumulate_lock;
  }

  Process& process_;
  std::unique_ptr<OperationCounts> counts_;
  const int rank_;
  const int ranks_;
  const std::uint64_t id_;
  const std::uint32_t unit_;
  int lowest_with_data_ = -1;
  std::size_t region_words_ = 0;  // of a dynamic space: the offset of RegionWords in a control block
  std::size_t control_bytes_ = 0;
  std::byte* control_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t data_bytes_ = 0;
  const bool private_data_;
  const bool shared_;
  bool contiguous_ = false;
  bool all_support_membarrier_ = true;  // all ranks of the node take part in global_membarrier()
  bool all_immediate_ = false;
  bool all_words_mapped_ = false;
  bool node_mapped_ = false;  // this rank maps the control blocks of all ranks of its node, which are several
  bool may_keep_puts_ = false;
  RelaxedFlag threaded_;
  AccumulateRules rules_;
  bool counting_ = false;
  IntegerMethod integers_;  // the method of other types where memory is mapped
  int node_members_ = 1;    // of the group, on this node
  bool needs_fabric_ = false, some_unmapped_ = false, uses_cma_ = false, unshared_ = false;  // Reach
  std::unique_ptr<std::string> why_;  // Reach::why, until finish()
  NodeSegment segment_;
  std::unique_ptr<std::shared_ptr<const void>> exposed_;  // ShareableMemory::Place::users
  NodeTargets node_;
  CmaRoute cma_;
  NodeHandler* node_handler_ = nullptr;  // that serves this space to on-node peers
  std::unique_ptr<Regions> regions_;
  std::unique_ptr<FabricRoute> fabric_;  // null until open_fabric(); uses regions_
};

}  // namespace farside

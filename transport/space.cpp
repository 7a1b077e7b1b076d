// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "transport/base/random.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/regions/regions.hpp"

namespace farside {

struct Space::Exposed {
  Fabric& fabric;
  Fabric::Registration control;
  Fabric::Registration data;
  std::uint64_t region = 0;

  explicit Exposed(Fabric& owner) : fabric(owner) {}
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;
  ~Exposed() { fabric.withdraw(region); }
};

Result<std::unique_ptr<Space>> Space::make(const Request& request) {
  std::unique_ptr<Space> space(new Space());
  space->rank_ = request.rank;
  space->private_data_ = request.private_data != nullptr || request.dynamic;
  space->data_bytes_ = request.dynamic ? Regions::kBytes : request.data_bytes;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t region_words = (request.control_bytes + 63) / 64 * 64;
  const std::size_t control_bytes = region_words + (request.dynamic ? RegionWords::bytes(request.ranks) : 0);
  space->control_bytes_ = (control_bytes + page - 1) / page * page;
  space->shared_ = request.shared;
  space->contiguous_ = request.contiguous_bytes > 0;
  std::uint64_t allocated = space->private_data_ ? 0 : request.data_bytes;
  if (space->contiguous_) allocated = request.rank == 0 ? request.contiguous_bytes : 0;
  if (allocated > SIZE_MAX / 2 - space->control_bytes_) {
    return Error{ErrorKind::kNoMemory, fmt::format("{} bytes are more than an address space", allocated)};
  }
  Result<Segment> segment = make_segment(space->control_bytes_ + allocated);
  if (!segment) return segment.error();
  space->segment_ = std::move(segment.value());
  std::byte* base = space->segment_.mapping.base();
  space->data_ = space->private_data_ ? static_cast<std::byte*>(request.private_data) : base + space->control_bytes_;
  new (base) Header{random_bits(), {}, {}};
  if (request.dynamic) {
    space->data_ = reinterpret_cast<std::byte*>(Regions::kFirst);  // NOLINT(performance-no-int-to-ptr)
    space->regions_ = std::make_unique<Regions>(*space, static_cast<std::uint32_t>(region_words), base + region_words,
                                                request.ranks);
  }
  if (space->private_data_) allow_process_memory_access();
  space->targets_.resize(static_cast<std::size_t>(request.ranks));
  return space;
}

Space::Space() : process_(Process::instance()) {}
Space::~Space() {
  // The endpoint still has what is under way, if an error kept the caller from a flush; each ends, or its peer is given up.
  // What is held was put in an epoch that never ended.
  for (Target& to : targets_) {
    to.held = {};
    (void)complete(to);
  }
}

SpaceDescriptor Space::describe() const {
  SpaceDescriptor descriptor;
  const auto* header = reinterpret_cast<const Header*>(segment_.mapping.base());
  descriptor.nonce = header->nonce;
  descriptor.nonce_address = reinterpret_cast<std::uint64_t>(&header->nonce);
  descriptor.pid = getpid();
  descriptor.segment_fd = segment_.fd.get();
  descriptor.segment_bytes = segment_.mapping.bytes();
  descriptor.data_bytes = data_bytes_;
  if (!private_data_) return descriptor;
  descriptor.data_address = reinterpret_cast<std::uint64_t>(data_);
  if (regions_ != nullptr) return descriptor;
  if (const auto place = process_.shareable_memory().find(data_, data_bytes_)) {
    descriptor.data_fd = place->fd;
    descriptor.data_offset = place->offset;
  }
  return descriptor;
}

// Data that a peer made a window of are part of a file of its memory: from the page on where they begin.
Result<std::byte*> Space::map_data(Target& target, const SpaceDescriptor& peer) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t before = peer.data_offset % page;
  Result<Mapping> mapping = map_peer_segment(peer.pid, peer.data_fd, before + peer.data_bytes, peer.data_offset - before);
  if (!mapping) return mapping.error();
  target.data_mapping = std::move(mapping.value());
  return target.data_mapping.base() + before;
}

// Maps the peer's segment and, for private data, tries process_vm_readv; false, and why, if it cannot be reached so.
bool Space::map_peer(Target& target, const SpaceDescriptor& peer, std::string& why) {
  const Settings& settings = *process_.settings().value();
  if (!settings.mapped) {
    why = settings.cma ? "FARSIDE_ROUTES allows cma without mapped, by which cma reaches the control block"
                       : "FARSIDE_ROUTES does not allow mapped";
    if (!shared_) return false;
  }
  Result<Mapping> mapping = map_peer_segment(peer.pid, peer.segment_fd, peer.segment_bytes);
  if (!mapping) {
    why = mapping.error().text;
    return false;
  }
  if (reinterpret_cast<const Header*>(mapping.value().base())->nonce != peer.nonce) {
    why = fmt::format("process {} here is another one", peer.pid);
    return false;
  }
  if (settings.mapped && peer.data_fd >= 0) {
    Result<std::byte*> data = map_data(target, peer);
    if (!data) {
      why = data.error().text;
      return false;
    }
    target.memory = data.value();
  } else if (peer.data_address != 0 && peer.data_bytes > 0) {
    if (!settings.cma) {
      why = "its memory is private and FARSIDE_ROUTES does not allow cma";
      return false;
    }
    std::uint64_t nonce = 0;
    if (Status status = read_process_memory(peer.pid, peer.nonce_address, &nonce, sizeof nonce); !status) {
      why = status.error().text;
      return false;
    }
    if (nonce != peer.nonce) {
      why = fmt::format("process {} here is another one", peer.pid);
      return false;
    }
    target.route = RouteKind::kCma;
  } else {
    target.memory = mapping.value().base() + control_bytes_;
  }
  target.mapping = std::move(mapping.value());
  if (!settings.mapped) return false;
  if (target.memory != nullptr) target.route = RouteKind::kMapped;
  target.data = target.memory;
  target.control = target.mapping.base();
  return true;
}

// All data lie in rank 0's segment, one rank's behind the other's.
void Space::place_contiguously() {
  const Mapping& all = rank_ == 0 ? segment_.mapping : targets_[0].mapping;
  std::uint64_t before = 0;
  for (Target& target : targets_) {
    target.memory = all.base() + control_bytes_ + before;
    if (target.data != nullptr) target.data = target.memory;
    target.address = reinterpret_cast<std::uint64_t>(target.memory);
    before += target.bytes;
  }
  data_ = target(rank_).memory;
}

Space::Reach Space::map_peers(std::span<const SpaceDescriptor> peers, std::span<const char> same_node) {
  Reach reach;
  for (std::size_t r = 0; r < targets_.size(); ++r) {
    Target& target = targets_[r];
    target.bytes = regions_ == nullptr ? peers[r].data_bytes : 0;
    target.pid = peers[r].pid;
    target.address = peers[r].data_address;
    if (static_cast<int>(r) == rank_) {
      target.route = RouteKind::kSelf;
      target.memory = data_;
      target.data = data_;
      target.control = segment_.mapping.base();
      continue;
    }
    std::string why = "on another node";
    const bool reached = same_node[r] != 0 && map_peer(target, peers[r], why);
    const bool unshared = shared_ && target.memory == nullptr;
    if ((!reached && !reach.needs_fabric) || (unshared && !reach.unshared)) {
      reach.needs_fabric = true;
      reach.why = fmt::format("rank {}: {}", r, why);
    }
    reach.unshared = reach.unshared || unshared;
    reach.uses_cma = reach.uses_cma || target.route == RouteKind::kCma;
  }
  if (contiguous_ && !reach.unshared) place_contiguously();
  return reach;
}

Result<FabricDescriptor> Space::open_fabric() {
  Result<Fabric*> fabric = process_.fabric();
  if (!fabric) return fabric.error();
  exposed_ = std::make_unique<Exposed>(*fabric.value());
  FabricDescriptor descriptor;
  descriptor.address = fabric.value()->address();
  Result<Fabric::Registration> control = fabric.value()->expose(segment_.mapping.base(), control_bytes_);
  if (!control) return control.error();
  exposed_->control = std::move(control.value());
  descriptor.control = exposed_->control.key;
  // Regions are exposed one by one, when they are attached.
  if (data_bytes_ > 0 && regions_ == nullptr) {
    Result<Fabric::Registration> data = fabric.value()->expose(data_, data_bytes_);
    if (!data) return data.error();
    exposed_->data = std::move(data.value());
    descriptor.data = exposed_->data.key;
  }
  exposed_->region = fabric.value()->publish({data_, data_bytes_, &accumulate_lock(target(rank_)), false, {},
                                               segment_.mapping.base(), control_bytes_,
                                               regions_ != nullptr ? &regions_->own() : nullptr});
  descriptor.region = exposed_->region;
  return descriptor;
}

Status Space::connect(std::span<const FabricDescriptor> peers, bool some_cma) {
  std::vector<Peer> known;
  for (std::size_t r = 0; r < targets_.size(); ++r) {
    Result<Peer> peer = exposed_->fabric.insert(peers[r].address);
    if (!peer) return peer.status();
    known.push_back(peer.value());
    Target& target = targets_[r];
    target.peer = peer.value();
    target.control_key = peers[r].control;
    target.data_key = peers[r].data;
    target.region = peers[r].region;
    target.outstanding = std::make_unique<Outstanding>();
  }
  exposed_->fabric.admit(exposed_->region, std::move(known), some_cma);
  return {};
}

void Space::finish(bool some_cma) {
  always_locked_ = some_cma;
  // Either all ranks have opened the fabric or none has.
  floats_locked_ = exposed_ == nullptr;
  all_immediate_ = std::none_of(targets_.begin(), targets_.end(),
                                [](const Target& target) { return target.route == RouteKind::kFabric; });
  segment_.fd.reset();
}

Fabric& Space::fabric() const { return exposed_->fabric; }

Result<Space::Keyed> Space::keyed(const Target& to, std::uint64_t offset, std::size_t bytes) {
  if (regions_ == nullptr) [[likely]] return Keyed{to.data_key, offset, bytes};
  const std::uint64_t address = Regions::kFirst + offset;
  const Result<Region> region = regions_->find(static_cast<int>(&to - targets_.data()), address);
  if (!region) return region.error();
  return Keyed{region.value().key, address - region.value().address, std::min(bytes, region.value().end() - address)};
}

template <class Transfer>
Status Space::by_keys(const Target& to, std::uint64_t offset, std::size_t bytes, Transfer&& transfer) {
  for (std::size_t done = 0; done < bytes;) {
    const Result<Keyed> part = keyed(to, offset + done, bytes - done);
    if (!part) return part.error();
    const Keyed& here = part.value();
    if (Status status = transfer({to.peer, here.key, here.offset}, done, here.bytes); !status) return status;
    done += here.bytes;
  }
  return {};
}

Status Space::ask_for_regions(int rank, std::uint64_t first, std::span<std::byte> page) {
  const Target& to = target(rank);
  RequestHeader header{};
  header.kind = MessageKind::kRegions;
  header.type = BasicType::kByte;
  header.fetch = 1;
  header.sender = static_cast<std::uint32_t>(rank_);
  header.region = to.region;
  header.offset = first;
  header.count = static_cast<std::uint32_t>(page.size());
  Pending pending;
  if (Status asked = fabric().request(pending, to.peer, header, nullptr, 0, page.data(), page.size()); !asked) return asked;
  return wait_for(pending);
}

Status Space::put(int rank, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own) {
  Target& to = target(rank);
  if (to.data != nullptr) [[likely]] {
    put_at(rank, to.data + offset, origin, bytes);
    return {};
  }
  count(rank, Counted::kPut, bytes);
  if (to.route == RouteKind::kCma) return write_process_memory(to.pid, to.address + offset, origin, bytes);
  return put_over_fabric(to, offset, origin, bytes, own);
}

// Before a release, one small put waits and travels in one message with it, to the agent. Where that cannot be (a second
// put, an accumulate), it travels as an atomic write, behind which the release, an atomic too, is ordered. Measured over
// loopback on one busy core: write, wait, release 49 us; atomic write and release 50; one message 34; on two cores 66, 47
// and 37. A distant peer adds its latency once more to the first.
Status Space::put_over_fabric(Target& to, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own) {
  if (std::atomic_ref(to.ordered_puts).load(std::memory_order_relaxed) == kOrderedPuts && to.outstanding->done() && bytes > 0 &&
      bytes <= kMaxPutAndAdd && regions_ == nullptr && own == nullptr) {
    const std::scoped_lock held(held_mutex_);
    if (to.held.origin == nullptr) {
      to.held = {origin, offset, bytes, false};
      return {};
    }
  }
  if (Status status = issue_held(to); !status) return status;
  return write_over_fabric(to, own != nullptr ? *own : *to.outstanding, offset, origin, bytes);
}

Space::HeldPut Space::take_held(Target& to) {
  const std::scoped_lock held(held_mutex_);
  return std::exchange(to.held, {});
}

Status Space::issue_held(Target& to) {
  const HeldPut held = take_held(to);
  return held.origin == nullptr ? Status() : write_over_fabric(to, *to.outstanding, held.offset, held.origin, held.bytes);
}

Status Space::write_over_fabric(Target& to, Outstanding& among, std::uint64_t offset, const void* origin, std::size_t bytes) {
  return by_keys(to, offset, bytes, [&](const Fabric::Place& place, std::size_t done, std::size_t part) {
    return write_behind_key(to, among, {place.key, place.offset, part}, to.address + offset + done,
                            static_cast<const std::byte*>(origin) + done);
  });
}

// As an atomic write while a release is expected, in whatever elements fit: it takes 3 to 5 us longer than a write, and 3
// to 5 ns more per element.
Status Space::write_behind_key(Target& to, Outstanding& among, const Keyed& keyed, std::uint64_t address, const void* origin) {
  constexpr std::size_t kMostElements = 2048;
  const std::size_t bytes = keyed.bytes;
  const Fabric::Place place{to.peer, keyed.key, keyed.offset};
  // Relaxed: threads that put at the same time may lose a step, no more.
  const std::atomic_ref ordered_puts(to.ordered_puts);
  const std::uint32_t left = ordered_puts.load(std::memory_order_relaxed);
  if (left > 0 && fabric().orders_atomics() && to.outstanding->transfers.done() && to.outstanding->requests.done()) {
    for (const BasicType type : {BasicType::kUint64, BasicType::kUint32, BasicType::kUint8}) {
      const std::size_t size = traits(type).size;
      if (bytes % size != 0 || address % size != 0) continue;
      const std::size_t limit = fabric().atomic_limit(Fabric::AtomicCall::kPlain, ReduceOp::kReplace, type);
      if (bytes / size > std::min(kMostElements, limit)) break;
      ordered_puts.store(left - 1, std::memory_order_relaxed);
      return fabric().atomic(among.atomics, place, ReduceOp::kReplace, type, origin, nullptr, bytes / size);
    }
  }
  return fabric().write(among.transfers, place, origin, bytes);
}

Status Space::get(int rank, std::uint64_t offset, void* origin, std::size_t bytes, Outstanding* own) {
  Target& from = target(rank);
  if (from.data != nullptr) [[likely]] {
    get_at(rank, from.data + offset, origin, bytes);
    return {};
  }
  count(rank, Counted::kGet, bytes);
  if (from.route == RouteKind::kCma) return read_process_memory(from.pid, from.address + offset, origin, bytes);
  if (Status status = issue_held(from); !status) return status;
  Pending& among = own != nullptr ? own->transfers : from.outstanding->transfers;
  return by_keys(from, offset, bytes, [&](const Fabric::Place& place, std::size_t done, std::size_t part) {
    return fabric().read(among, place, static_cast<std::byte*>(origin) + done, part);
  });
}

Status Space::accumulate(int rank, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin,
                         void* fetched, std::size_t elements, Access access, Outstanding* own) {
  Target& to = target(rank);
  if (to.data != nullptr) [[likely]] {
    accumulate_at(rank, to.data + offset, op, type, origin, fetched, elements, access);
    return {};
  }
  count(rank, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * traits(type).extent);
  if (op == ReduceOp::kNoOp) {
    if (fetched == nullptr) return {};
    origin = nullptr;
  }
  if (to.route == RouteKind::kCma) return accumulate_by_cma(to, offset, op, type, origin, fetched, elements);
  return accumulate_over_fabric(to, own != nullptr ? *own : *to.outstanding, offset, op, type, origin, fetched, elements);
}

void Space::accumulate_at(int rank, std::byte* at, ReduceOp op, BasicType type, const void* origin, void* fetched,
                          std::size_t elements, Access access) {
  const std::size_t extent = traits(type).extent;
  count(rank, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * extent);
  if (op == ReduceOp::kNoOp) {
    if (fetched == nullptr) return;
    origin = nullptr;
  }
  if (access == Access::kAlone) {
    combine(AtomicWay::kLocked, op, type, at, origin, fetched, elements);
    stores_.made();
    return;
  }
  if (way(type, at) == AtomicWay::kAtomic) {
    combine(AtomicWay::kAtomic, op, type, at, origin, fetched, elements);
    // Everything else is a read-modify-write, or nothing is stored.
    if (op == ReduceOp::kReplace && fetched == nullptr) stores_.made();
    return;
  }
  // In pieces, so that no other rank waits long for the lock.
  const std::size_t most = elements * extent <= kLockedBytes ? elements : kLockedBytes / extent;
  for (std::size_t done = 0; done < elements;) {
    const std::size_t part = std::min(elements - done, most);
    const auto piece = [&](auto* buffer) { return buffer != nullptr ? buffer + done * extent : nullptr; };
    const AccumulateLock held(accumulate_lock(target(rank)));
    combine(AtomicWay::kLocked, op, type, at + done * extent, piece(static_cast<const std::byte*>(origin)),
            piece(static_cast<std::byte*>(fetched)), part);
    done += part;
  }
  stores_.made();
}

namespace {

// Pairs without their gaps, which belong to someone else and may change meanwhile.
Status write_pairs(pid_t pid, std::uint64_t remote, BasicType type, std::byte* local, std::size_t count) {
  const BasicTypeTraits& of = traits(type);
  const std::size_t lengths[] = {of.first, std::size_t{of.size} - of.first};
  const std::size_t offsets[] = {0, of.second};
  std::vector<iovec> here, there;
  for (std::size_t i = 0; i < count; ++i) {
    for (const int member : {0, 1}) {
      const std::size_t at = i * of.extent + offsets[member];
      here.push_back({local + at, lengths[member]});
      there.push_back({reinterpret_cast<void*>(remote + at), lengths[member]});  // NOLINT(performance-no-int-to-ptr)
    }
  }
  return write_process_memory(pid, here, there);
}

}  // namespace

Status Space::accumulate_by_cma(Target& to, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin,
                                void* fetched, std::size_t count) {
  // Read, combine, write back in pieces, so that no other rank waits long for the lock.
  alignas(16) std::array<std::byte, kLockedBytes> copy;
  const std::size_t extent = traits(type).extent;
  for (std::size_t done = 0; done < count;) {
    const std::size_t part = std::min(count - done, kLockedBytes / extent);
    const std::uint64_t at = to.address + offset + done * extent;
    const AccumulateLock held(accumulate_lock(to));
    const std::size_t span = span_of(type, part);
    if (Status status = read_process_memory(to.pid, at, copy.data(), span); !status) return status;
    combine(AtomicWay::kLocked, op, type, copy.data(),
            origin != nullptr ? static_cast<const std::byte*>(origin) + done * extent : nullptr,
            fetched != nullptr ? static_cast<std::byte*>(fetched) + done * extent : nullptr, part);
    if (op != ReduceOp::kNoOp) {
      Status status = has_gap(type) ? write_pairs(to.pid, at, type, copy.data(), part)
                                    : write_process_memory(to.pid, at, copy.data(), span);
      if (!status) return status;
    }
    done += part;
  }
  return {};
}

// Accumulates towards one target take effect in the order in which they were issued (accumulate_ordering, MPI 4.0
// section 12.7.2). Requests stay in order among themselves, and so do atomics of a provider that orders them; before one
// kind is issued the other is waited for.
Status Space::keep_order(Target& to, bool by_request) {
  if (Status status = issue_held(to); !status) return status;
  if (by_request) return wait_for(to.outstanding->atomics);
  Status requested = wait_for(to.outstanding->requests);
  if (!requested || exposed_->fabric.orders_atomics()) return requested;
  return wait_for(to.outstanding->atomics);
}

Status Space::accumulate_over_fabric(Target& to, Outstanding& among, std::uint64_t offset, ReduceOp op, BasicType type,
                                     const void* origin, void* fetched, std::size_t count) {
  Fabric& fabric = exposed_->fabric;
  const std::size_t extent = traits(type).extent;
  // The address at the target decides, as it does there; all data begins at the same alignment in every process
  // that maps it, and private data has one address.
  const auto* address = reinterpret_cast<const void*>(to.address != 0 ? to.address + offset : offset);
  const auto call = fetched != nullptr ? Fabric::AtomicCall::kFetch : Fabric::AtomicCall::kPlain;
  const Result<Keyed> place = keyed(to, offset, count * extent);
  if (!place) return place.error();
  // The agent knows no borders between regions.
  const bool by_request = way(type, address) == AtomicWay::kLocked || fabric.atomic_limit(call, op, type) == 0 ||
                          place.value().bytes < count * extent;
  if (Status status = keep_order(to, by_request); !status) return status;
  if (!by_request) {
    return fabric.atomic(among.atomics, {to.peer, place.value().key, place.value().offset}, op, type, origin, fetched, count);
  }
  RequestHeader header{};
  header.kind = MessageKind::kAccumulate;
  header.op = op;
  header.type = type;
  header.fetch = fetched != nullptr ? 1 : 0;
  header.sender = static_cast<std::uint32_t>(rank_);
  header.region = to.region;
  for (std::size_t done = 0; done < count;) {
    const std::size_t part = std::min(count - done, kMaxPayload / extent);
    header.offset = offset + done * extent;
    header.count = static_cast<std::uint32_t>(part);
    const void* payload = origin != nullptr ? static_cast<const std::byte*>(origin) + done * extent : nullptr;
    void* result = fetched != nullptr ? static_cast<std::byte*>(fetched) + done * extent : nullptr;
    Status status = fabric.request(among.requests, to.peer, header, payload, origin != nullptr ? span_of(type, part) : 0,
                                   result, fetched != nullptr ? part * extent : 0);
    if (!status) return status;
    done += part;
  }
  return {};
}

void Space::compare_and_swap_at(int rank, std::byte* at, BasicType type, const void* origin, const void* compare,
                                void* fetched) {
  count(rank, Counted::kCompareAndSwap, traits(type).extent);
  if (way(type, at) == AtomicWay::kAtomic) [[likely]] {
    farside::compare_and_swap(AtomicWay::kAtomic, type, at, origin, compare, fetched);
    return;
  }
  const AccumulateLock held(accumulate_lock(target(rank)));
  farside::compare_and_swap(AtomicWay::kLocked, type, at, origin, compare, fetched);
  stores_.made();
}

Status Space::compare_and_swap(int rank, std::uint64_t offset, BasicType type, const void* origin,
                               const void* compare, void* fetched) {
  Target& to = target(rank);
  if (to.data != nullptr) [[likely]] {
    compare_and_swap_at(rank, to.data + offset, type, origin, compare, fetched);
    return {};
  }
  const std::size_t extent = traits(type).extent;
  count(rank, Counted::kCompareAndSwap, extent);
  if (to.route == RouteKind::kCma) {
    std::array<std::byte, 64> copy;
    const AccumulateLock held(accumulate_lock(to));
    if (Status status = read_process_memory(to.pid, to.address + offset, copy.data(), extent); !status) return status;
    farside::compare_and_swap(AtomicWay::kLocked, type, copy.data(), origin, compare, fetched);
    return write_process_memory(to.pid, to.address + offset, copy.data(), extent);
  }
  Fabric& fabric = exposed_->fabric;
  const auto* address = reinterpret_cast<const void*>(to.address != 0 ? to.address + offset : offset);
  const Result<Keyed> place = keyed(to, offset, extent);
  if (!place) return place.error();
  const bool by_request = way(type, address) == AtomicWay::kLocked || place.value().bytes < extent ||
                          fabric.atomic_limit(Fabric::AtomicCall::kCompare, ReduceOp::kReplace, type) == 0;
  if (Status status = keep_order(to, by_request); !status) return status;
  if (!by_request) {
    return fabric.compare_and_swap(to.outstanding->atomics, {to.peer, place.value().key, place.value().offset}, type, origin, compare,
                                   fetched);
  }
  std::array<std::byte, 64> elements;
  std::memcpy(elements.data(), compare, extent);
  std::memcpy(elements.data() + extent, origin, extent);
  RequestHeader header{};
  header.kind = MessageKind::kCompareAndSwap;
  header.type = type;
  header.fetch = 1;
  header.sender = static_cast<std::uint32_t>(rank_);
  header.region = to.region;
  header.offset = offset;
  header.count = 1;
  Status status = fabric.request(to.outstanding->requests, to.peer, header, elements.data(), 2 * extent, fetched, extent);
  if (!status) return status;
  // The elements are on this stack.
  return wait_for(to.outstanding->requests);
}

Status Space::wait_for(Pending& pending) {
  for (Waiter waiter(process_, bell()); !pending.done();) waiter.pause();
  return pending.take_error();
}

std::unique_ptr<Outstanding> Space::own_outstanding(int rank) {
  Target& to = target(rank);
  return to.outstanding == nullptr ? nullptr : std::make_unique<Outstanding>(*to.outstanding);
}

void Space::give_up(int rank, std::unique_ptr<Outstanding> own) {
  if (own == nullptr) return;
  const std::scoped_lock held(held_mutex_);
  target(rank).given_up.push_back(std::move(own));
}

Status Space::complete(Target& to) {
  if (to.outstanding == nullptr) return {};
  std::atomic_ref(to.ordered_puts).store(0, std::memory_order_relaxed);
  Status first = issue_held(to);
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  for (Pending* pending : {&to.outstanding->transfers, &to.outstanding->atomics, &to.outstanding->requests}) {
    keep(wait_for(*pending));
  }
  const std::scoped_lock held(held_mutex_);
  std::erase_if(to.given_up, [&](const std::unique_ptr<Outstanding>& own) {
    const bool done = own->done();
    if (done) keep(own->take_error());
    return done;
  });
  return first;
}

Status Space::settle(int rank) {
  Target& to = target(rank);
  if (to.outstanding == nullptr) return {};  // inside the node nothing is outstanding
  const bool alone = to.outstanding->done();
  {
    const std::scoped_lock held(held_mutex_);
    to.held.settled = alone;
    if (alone) return {};
  }
  if (Status status = issue_held(to); !status) return status;
  const bool ordered = exposed_->fabric.orders_atomics() && to.outstanding->transfers.done() && to.outstanding->requests.done();
  return ordered ? Status() : complete(to);
}

Status Space::flush(int rank) {
  Status status = complete(target(rank));
  settle_stores();
  return status;
}

Status Space::flush_all() {
  if (all_immediate_) [[likely]] {
    settle_stores();
    return {};
  }
  Status first;
  for (Target& to : targets_) {
    Status status = complete(to);
    if (!status && first) first = std::move(status);
  }
  settle_stores();
  return first;
}

Status Space::add_with_held(Target& to, std::uint32_t word, Pending& pending, const std::uint64_t* operand,
                            std::uint64_t* fetched, const HeldPut& held) {
  RequestHeader header{};
  header.kind = MessageKind::kPutAndAdd;
  header.op = ReduceOp::kReplace;
  header.type = BasicType::kByte;
  header.fetch = 1;
  header.sender = static_cast<std::uint32_t>(rank_);
  header.region = to.region;
  header.offset = held.offset;
  header.count = static_cast<std::uint32_t>(held.bytes);
  return exposed_->fabric.put_and_add(pending, to.peer, header, held.origin, {word, *operand}, fetched);
}

Status Space::control(ControlCall call, int rank, std::uint32_t word, Pending& pending, const std::uint64_t* operand,
                      const std::uint64_t* compare, std::uint64_t* fetched) {
  Target& to = target(rank);
  process_.statistics().add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  const Fabric::Place place{to.peer, to.control_key, word};
  Fabric& fabric = exposed_->fabric;
  constexpr BasicType kWord = BasicType::kUint64;
  if (call == ControlCall::kFetchAdd) {
    std::unique_lock held(held_mutex_);
    if (to.held.settled && to.held.origin != nullptr) {
      const HeldPut put = std::exchange(to.held, {});
      held.unlock();
      return add_with_held(to, word, pending, operand, fetched, put);
    }
  }
  switch (call) {
    case ControlCall::kFetchAdd: return fabric.atomic(pending, place, ReduceOp::kSum, kWord, operand, fetched, 1);
    case ControlCall::kCompareAndSwap: return fabric.compare_and_swap(pending, place, kWord, operand, compare, fetched);
    case ControlCall::kRead: return fabric.atomic(pending, place, ReduceOp::kNoOp, kWord, operand, fetched, 1);
    case ControlCall::kWrite: return fabric.atomic(pending, place, ReduceOp::kReplace, kWord, operand, nullptr, 1);
  }
  return {};
}

}  // namespace farside

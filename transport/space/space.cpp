// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/space.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "transport/base/global_membarrier.hpp"
#include "transport/base/log.hpp"
#include "transport/base/random.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/node/open_to_peers.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/space/regions.hpp"

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
  space->control_bytes_ = (control_bytes + sizeof(IntegerWords) + page - 1) / page * page;
  space->threaded_ = request.threaded;
  space->shared_ = request.shared;
  space->contiguous_ = request.contiguous_bytes > 0;
  std::uint64_t allocated = space->private_data_ ? 0 : request.data_bytes;
  if (space->contiguous_) allocated = request.rank == 0 ? request.contiguous_bytes : 0;
  if (allocated > SIZE_MAX / 2 - space->control_bytes_) {
    return Error{ErrorKind::kNoMemory, fmt::format("{} bytes are more than an address space", allocated)};
  }
  Result<Segment> segment = make_segment(space->control_bytes_ + allocated, space->control_bytes_);
  if (!segment) return segment.error();
  space->segment_ = std::move(segment.value());
  std::byte* base = space->segment_.mapping.base();
  space->data_ = space->private_data_ ? static_cast<std::byte*>(request.private_data) : base + space->control_bytes_;
  new (base) Header{random_bits(), {}, {}};
  new (base + space->control_bytes_ - sizeof(IntegerWords)) IntegerWords;
  if (request.dynamic) {
    space->data_ = reinterpret_cast<std::byte*>(Regions::kFirst);  // NOLINT(performance-no-int-to-ptr)
    space->regions_ = std::make_unique<Regions>(*space, static_cast<std::uint32_t>(region_words), base + region_words,
                                                request.ranks);
  }
  space->targets_.resize(static_cast<std::size_t>(request.ranks));
  return space;
}

Space::Space() : process_(Process::instance()), counting_(false) {}

OperationCounts& Space::count_by_target(bool threaded) {
  counts_ = std::make_unique<OperationCounts>(ranks(), threaded);
  counting_ = true;
  for (int target = 0; target < ranks(); ++target) this->target(target).counts = counts_->row(target);
  return *counts_;
}

void Space::expect_threads() {
  threaded_ = true;
  integers_.expect_threads();
  if (counts_ == nullptr) return;
  counts_->expect_threads();
  for (int target = 0; target < ranks(); ++target) this->target(target).counts = nullptr;
}

Space::~Space() {
  // After an error the caller may not have flushed. The endpoint still uses operations that are under way: each
  // completes, or its peer is abandoned. Coalesced operations belong to an epoch that never ended, and are dropped.
  for (Target& to : targets_) {
    if (to.outstanding != nullptr) to.outstanding->coalesced = {};
    (void)complete(to);
  }
  if (served_by_node_handler_) process_.node_handler().value()->withdraw(*served_by_node_handler_);
}

SpaceDescriptor Space::describe(bool on_node_peers) {
  SpaceDescriptor descriptor;
  const auto* header = reinterpret_cast<const Header*>(segment_.mapping.base());
  descriptor.nonce = header->nonce;
  descriptor.nonce_address = reinterpret_cast<std::uint64_t>(&header->nonce);
  descriptor.pid = getpid();
  descriptor.segment_fd = segment_.fd.get();
  descriptor.segment_bytes = segment_.mapping.bytes();
  descriptor.data_bytes = data_bytes_;
  descriptor.memory = segment_.need;
  descriptor.membarrier = supports_global_membarrier() ? 1 : 0;
  if (!private_data_) return descriptor;
  descriptor.data_address = reinterpret_cast<std::uint64_t>(data_);
  if (regions_ == nullptr) {
    if (const auto place = process_.shareable_memory().find(data_, data_bytes_)) {
      descriptor.data_fd = place->fd;
      descriptor.data_offset = place->offset;
      return descriptor;
    }
  }
  const Settings& settings = *process_.settings().value();
  if (!on_node_peers || targets_.size() == 1 || !settings.mapped || !settings.cma) return descriptor;
  PeerPermission::instance().need();  // the peers try it before they choose a route
  descriptor.handler = serve_on_node_peers();
  return descriptor;
}

// If there is no handler, on-node peers move fragments one by one.
NodeHandlerDescriptor Space::serve_on_node_peers() {
  Result<NodeHandler*> handler = process_.node_handler();
  if (!handler) {
    log(LogLevel::kInfo, "no handler for the on-node peers on this node: {}", handler.error().text);
    return {};
  }
  auto* header = reinterpret_cast<Header*>(segment_.mapping.base());
  const NodeHandlerDescriptor descriptor =
      handler.value()->publish({data_,
                                regions_ != nullptr ? Regions::kBytes : data_bytes_,
                                &header->accumulate_lock,
                                true,
                                {},
                                nullptr,
                                0,
                                regions_ != nullptr ? &regions_->own() : nullptr},
                               ranks());
  served_by_node_handler_ = descriptor.region;
  return descriptor;
}

// Maps a peer's data that are part of its file of shareable memory, from the page on in which they begin.
Result<std::byte*> Space::map_data(Target& target, const SpaceDescriptor& peer) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t before = peer.data_offset % page;
  Result<Mapping> mapping =
      map_peer_segment(peer.pid, peer.data_fd, before + peer.data_bytes, peer.data_offset - before);
  if (!mapping) return mapping.error();
  target.data_mapping = std::move(mapping.value());
  return target.data_mapping.base() + before;
}

// Maps the peer's segment and, for private data, tries process_vm_readv. Returns false, and why, if neither route
// works.
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
    why = fmt::format("process id {} is that of another process here", peer.pid);
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
      why = fmt::format("process id {} is that of another process here", peer.pid);
      return false;
    }
    target.route = RouteKind::kCma;
    if (peer.handler.fd >= 0) {
      auto handler = PeerNodeHandler::find(peer.pid, peer.nonce_address, peer.nonce, peer.handler);
      if (handler) {
        target.handler = std::move(handler.value());
      } else {
        log(LogLevel::kInfo, "the handler of process {}: {}", peer.pid, handler.error().text);
      }
    }
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

// All data lie in rank 0's segment, in rank order.
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
    all_support_membarrier_ = all_support_membarrier_ && peers[r].membarrier == 1;
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

Result<FabricDescriptor> Space::open_fabric(Providers among) {
  Result<Fabric*> fabric = process_.fabric(among);
  if (!fabric) return fabric.error();
  exposed_ = std::make_unique<Exposed>(*fabric.value());
  FabricDescriptor descriptor;
  descriptor.address = fabric.value()->address();
  Result<Fabric::Registration> control = fabric.value()->expose(segment_.mapping.base(), control_bytes_);
  if (!control) return control.error();
  exposed_->control = std::move(control.value());
  descriptor.control = exposed_->control.key;
  // Regions are exposed when they are attached.
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
  descriptor.nic_atomics = fabric.value()->nic_atomics() ? 1 : 0;
  return descriptor;
}

Status Space::connect(std::span<const FabricDescriptor> peers, bool some_cma) {
  std::vector<Peer> known;
  for (std::size_t r = 0; r < targets_.size(); ++r) {
    Target& target = targets_[r];
    target.peer = exposed_->fabric.insert(peers[r].address);
    known.push_back(target.peer);
    target.control_key = peers[r].control;
    target.data_key = peers[r].data;
    target.region = peers[r].region;
    if (target.route == RouteKind::kFabric) target.outstanding = std::make_unique<AllOutstanding>(static_cast<int>(r));
  }
  control_by_nic_ =
      std::all_of(peers.begin(), peers.end(), [](const FabricDescriptor& peer) { return peer.nic_atomics == 1; });
  exposed_->fabric.admit(exposed_->region, std::move(known), some_cma);
  return {};
}

void Space::finish(bool some_cma) {
  counting_ = process_.statistics().enabled();
  always_locked_ = some_cma;
  // Either all ranks have opened the fabric or none has.
  floats_locked_ = exposed_ == nullptr;
  // If so, every rank maps every target, and all ranks can change their method together.
  if (!always_locked_ && exposed_ == nullptr && all_support_membarrier_) {
    std::vector<IntegerWords*> words;
    for (const Target& target : targets_) words.push_back(integer_words(target));
    integers_.start(std::move(words), rank_, threaded_);
  }
  all_immediate_ = !control_by_nic_ && std::none_of(targets_.begin(), targets_.end(),
                                [](const Target& target) { return target.route == RouteKind::kFabric; });
  segment_.published(static_cast<std::size_t>(
      std::ranges::count_if(targets_, [](const Target& t) { return t.route != RouteKind::kFabric; })));
}

Fabric& Space::fabric() const { return exposed_->fabric; }

}  // namespace farside

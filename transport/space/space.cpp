// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/space.hpp"

#include <algorithm>
#include <new>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/handler/node_handler.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/routes/fabric/fabric_route.hpp"
#include "transport/space/regions.hpp"

namespace farside {
namespace {

// All pages of a control block of at most kWholeControl bytes are allocated at once. Of a longer one only the pages of
// the first kStartOfControl bytes are, which have the words that every rank uses. The words behind them are used by
// posts, and in a large job few ranks post.
constexpr std::size_t kWholeControl = 8192, kStartOfControl = 4096;

std::size_t in_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

HugePages huge_pages() {
  return Process::instance().settings().value()->huge_pages ? HugePages::of_kernel() : HugePages();
}

}  // namespace

// The description of a rank's memory for its on-node peers.
struct Space::Offer {
  std::uint64_t allocated = 0;  // bytes of data in the segment of the node
  std::uint64_t need = 0;       // of memory, as MemoryNeed says
  std::uint64_t data_bytes = 0;
  std::uint64_t data_place = 0;  // of private data: the address in the process, or the offset in `data_fd`
  std::int32_t data_fd = -1;     // of private data in a file that peers can map (ShareableMemory)
  std::uint64_t alignment = 1;   // as in Request
  std::uint32_t unit = 0;
  std::int32_t failed = 0;  // 0, or 1 + ErrorKind
  bool contiguous = false;
  bool overcommit = false;
  bool handled = false;  // the rank's node handler serves it
};

Space::Space(const Request& request)
    : rank_(request.rank),
      ranks_(request.ranks),
      id_(request.id),
      unit_(request.unit),
      private_data_(request.private_data != nullptr || request.dynamic),
      shared_(request.shared),
      words_(request.rank),
      mapped_(words_.node(), request.rank),
      cma_(words_.node(), request.rank) {
  region_words_ = static_cast<std::uint32_t>((request.control_bytes + 63) / 64 * 64);
  const std::size_t control = region_words_ + (request.dynamic ? RegionWords::bytes(request.ranks) : 0);
  control_bytes_ = static_cast<std::uint32_t>(in_pages(control));
  data_bytes_ = request.dynamic ? Regions::kBytes : request.data_bytes;
  threaded_ = request.threaded;
  if (request.threaded) cma_.expect_threads();
}

Result<std::unique_ptr<Space>> Space::make(const Request& request, NodeGroup& node) {
  std::unique_ptr<Space> space(new Space(request));
  const Settings& settings = *Process::instance().settings().value();
  if (!request.shared && !settings.allows(RouteKind::kMapped)) {
    const std::unique_ptr<NodeGroup> alone = NodeGroup::alone(request.rank);
    Result<std::unique_ptr<Space>> made = make_here(std::move(space), request, node, *alone);
    if (made && request.ranks > 1) {
      made.value()->needs_fabric_ = true;
      made.value()->why_ = std::make_unique<std::string>(
          settings.allows(RouteKind::kCma)
              ? "FARSIDE_ROUTES allows cma without mapped, by which cma reaches the control block"
              : "FARSIDE_ROUTES does not allow mapped");
    }
    return made;
  }
  return make_here(std::move(space), request, node, node);
}

// `mapped`: the members of the node whose memory is mapped, or this process alone. The limits of memory concern all
// members.
Result<std::unique_ptr<Space>> Space::make_here(std::unique_ptr<Space> space, const Request& request, NodeGroup& node,
                                                NodeGroup& mapped) {
  const bool apart = mapped.members() < node.members();
  const std::size_t control_bytes = space->control_bytes_;
  const auto check = [&](std::span<const Offer> offers) -> Status {
    std::vector<MemoryShare> shares;
    for (std::size_t i = 0; i < offers.size(); ++i) {
      if (offers[i].failed != 0) return Error{static_cast<ErrorKind>(offers[i].failed - 1), {}};
      shares.push_back({offers[i].need, node.member(static_cast<int>(i)).limits});
    }
    const std::uint64_t own = offers[static_cast<std::size_t>(node.index())].allocated;
    return check_memory_needs(find_memory_need(control_bytes + huge_pages().whole(own)), shares);
  };
  const auto layout = [&](std::span<const Offer> offers) {
    NodeSegment::Layout made;
    made.control_bytes = control_bytes;
    made.reserved = control_bytes <= kWholeControl ? control_bytes : kStartOfControl;
    made.contiguous = request.shared && std::ranges::any_of(offers, &Offer::contiguous);
    for (const Offer& each : offers) {
      made.data.push_back(each.allocated);
      made.alignment = std::max(made.alignment, each.alignment);
      made.overcommit = made.overcommit || each.overcommit;
    }
    made.huge = huge_pages();
    return made;
  };
  Status failed;
  const Offer own = space->offer(request, mapped, failed);
  Result<NodeSegment> segment = NodeSegment();
  Status possible;
  // The leader makes the memory as soon as it has all offers.
  auto [offers, announcement] = node.exchange_by_leader(own, Process::instance(), [&](const std::vector<Offer>& all) {
    NodeSegment::Announcement made;
    if (apart) return made;
    possible = check(all);
    if (possible) {
      segment = NodeSegment::lead(mapped, layout(all), made);
    } else {
      made.failed = 1 + static_cast<std::int32_t>(possible.error().kind);
    }
    return made;
  });
  if (!failed) return failed.error();
  if (apart || !node.leads()) possible = check(offers);
  if (!possible) return possible.error();
  if (apart) {
    offers = {own};
    segment = NodeSegment::lead(mapped, layout(offers), announcement);
  } else if (!node.leads()) {
    segment = NodeSegment::join(mapped, layout(offers), announcement);
  }
  if (!segment) return segment.error();
  space->take_memory(request, mapped, offers, std::move(segment.value()));
  space->find_routes(mapped, offers);
  return space;
}

void Space::decline(ErrorKind why, NodeGroup& node, Progress& progress) {
  Offer none;
  none.failed = 1 + static_cast<std::int32_t>(why);
  (void)node.exchange_by_leader(none, progress, [](const std::vector<Offer>&) { return NodeSegment::Announcement(); });
}

Space::Offer Space::offer(const Request& request, NodeGroup& node, Status& failed) {
  Offer own;
  own.allocated = private_data_ ? 0 : request.data_bytes;
  own.data_bytes = request.dynamic ? 0 : request.data_bytes;
  own.unit = unit_;
  own.contiguous = request.contiguous;
  own.alignment = request.alignment;
  own.overcommit = request.overcommit;
  if (own.allocated > SIZE_MAX / 2 - control_bytes_) {
    failed = Error{ErrorKind::kNoMemory, fmt::format("{} bytes are more than an address space", own.allocated)};
    own.failed = 1 + static_cast<std::int32_t>(ErrorKind::kNoMemory);
    return own;
  }
  own.need = find_memory_need(control_bytes_ + (own.overcommit ? 0 : huge_pages().whole(own.allocated))).bytes;
  if (!private_data_) return own;
  data_ = request.dynamic ? reinterpret_cast<std::byte*>(Regions::kFirst)  // NOLINT(performance-no-int-to-ptr)
                          : static_cast<std::byte*>(request.private_data);
  own.data_place = reinterpret_cast<std::uint64_t>(data_);
  if (node.members() == 1) return own;
  if (!request.dynamic) {
    if (auto place = Process::instance().shareable_memory().find(data_, data_bytes_)) {
      own.data_fd = place->fd;
      own.data_place = place->offset;
      exposed_ = std::make_unique<std::shared_ptr<const void>>(std::move(place->users));
      return own;
    }
  }
  if (!Process::instance().settings().value()->allows(RouteKind::kCma)) return own;
  Process::instance().peer_permission().need();  // the peers try it before they choose a route
  // Without a handler on-node peers move fragments one by one.
  if (const Result<NodeHandler*> handler = Process::instance().node_handler()) {
    own.handled = true;
    node.set_handler(handler.value()->place());
  } else {
    log(LogLevel::kInfo, "no handler for the on-node peers: {}", handler.error().text);
  }
  return own;
}

void Space::take_memory(const Request& request, NodeGroup& node, std::span<const Offer> offers, NodeSegment segment) {
  segment_ = std::move(segment);
  contiguous_ = shared_ && std::ranges::any_of(offers, &Offer::contiguous);
  std::byte* const control = segment_.control(node.index());
  if (!private_data_) data_ = segment_.data(node.index());
  ControlHeader& header = ControlHeader::of(control);
  new (&header.accumulate_lock) AccumulateLockWord{};
  new (&header.wake_event) WakeEvent;
  static const ProcessIdentity own_process = ProcessIdentity::own();
  header.owner = own_process;
  new (&header.integers) IntegerWords;
  mapped_.integers().announce_in(header.integers);
  words_.begin(control);
  if (request.dynamic) {
    regions_ = std::make_unique<Regions>(*this, region_words_, control + region_words_, ranks_);
  }
  if (offers[static_cast<std::size_t>(node.index())].handled) {
    NodeHandler* const handler = Process::instance().node_handler().value();
    if (handler->publish(id_, served_space(true))) node_handler_ = handler;
  }
}

MessageHandler::ServedSpace Space::served_space(bool always_locked) {
  MessageHandler::ServedSpace served;
  served.base = data_;
  served.bytes = data_bytes_;
  served.lock = &ControlHeader::of(words_.own_block()).accumulate_lock;
  served.integers = &mapped_.integers();
  served.always_locked = always_locked;
  served.ranks = static_cast<std::uint32_t>(ranks_);
  served.attached = regions_ != nullptr ? &regions_->own() : nullptr;
  return served;
}

void Space::find_routes(NodeGroup& node, std::span<const Offer> offers) {
  NodeTargets& targets = words_.node();
  targets.reserve(offers.size());
  if (node.members() < ranks_) {
    needs_fabric_ = true;
    why_ = std::make_unique<std::string>("some rank is on another node");
  }
  for (int i = 0; i < node.members(); ++i) targets.add(node.member(i).rank);
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const NodeMember member = node.member(static_cast<int>(i));
    NodeTarget& target = targets.all()[i];
    target.bytes = offers[i].data_bytes;
    target.unit = offers[i].unit;
    all_support_membarrier_ = all_support_membarrier_ && member.membarrier == 1;
    if (member.rank == rank_) {
      target.data = data_;
      target.control = words_.own_block();
      continue;
    }
    target.control = segment_.control(static_cast<int>(i));
    std::byte* memory = segment_.data(static_cast<int>(i));
    std::string why;
    const bool reached = find_route(target, member, offers[i], memory, why);
    const bool unshared = shared_ && memory == nullptr;
    if ((!reached && !needs_fabric_) || (unshared && !unshared_))
      why_ = std::make_unique<std::string>(fmt::format("rank {}: {}", member.rank, why));
    needs_fabric_ = needs_fabric_ || !reached;
    some_unmapped_ = some_unmapped_ || !reached;
    unshared_ = unshared_ || unshared;
    uses_cma_ = uses_cma_ || targets.route(target) == RouteKind::kCma;
  }
  targets.arrange();
  segment_.forget_places();
}

// `memory`: before the call, the address of the target's data if they lie in the segment; afterwards the address at
// which they are mapped, or null. Returns false and the reason in `why` if no route inside the node reaches the target.
bool Space::find_route(NodeTarget& target, const NodeMember& member, const Offer& offer, std::byte*& memory,
                       std::string& why) {
  const Settings& settings = *Process::instance().settings().value();
  const auto unreached = [&](std::string reason) {
    why = std::move(reason);
    target.control = nullptr;
    return false;
  };
  if (offer.data_bytes == 0 && regions_ == nullptr) {
    // There are no data to reach.
  } else if (offer.data_fd >= 0) {
    // From the page on in which the data begin.
    const std::uint64_t before = offer.data_place % in_pages(1);
    Result<Mapping> mapping =
        map_peer_segment(member.pid, offer.data_fd, before + offer.data_bytes, offer.data_place - before);
    memory = nullptr;
    if (!mapping) return unreached(mapping.error().text);
    memory = mapping.value().base() + before;
    words_.node().make_extra(target).mapping = std::move(mapping.value());
  } else if (offer.allocated == 0) {
    memory = nullptr;
    if (!settings.allows(RouteKind::kCma))
      return unreached("its memory is private and FARSIDE_ROUTES does not allow cma");
    std::uint64_t nonce = 0;
    if (Status status = read_process_memory(member.pid, member.nonce_address, &nonce, sizeof nonce); !status)
      return unreached(status.error().text);
    if (nonce != member.nonce)
      return unreached(fmt::format("process id {} is that of another process here", member.pid));
    NodeTargetExtra& extra = words_.node().make_extra(target);
    extra.pid = member.pid;
    extra.address = offer.data_place;
    extra.lock = &ControlHeader::of(target.control).accumulate_lock;
    if (!offer.handled) return true;
    auto handler = PeerNodeHandler::find(member.pid, member.nonce_address, member.nonce, member.handler, id_);
    // Without the peer's queue, this rank could not find out whether lists that other ranks have posted are executed.
    if (!handler) return unreached(handler.error().text);
    extra.handler = std::move(handler.value());
    return true;
  }
  if (settings.allows(RouteKind::kMapped)) {
    target.data = memory;
    return true;
  }
  // A shared space is mapped whatever the routes of operations are.
  words_.node().make_extra(target).memory = memory;
  return unreached("FARSIDE_ROUTES does not allow mapped");
}

Status Space::open_fabric(Endpoint& endpoint, bool some_cma) {
  fabric_ = std::make_unique<FabricRoute>(
      FabricRoute::Setup{endpoint, Process::instance(), words_.wake_event(), rank_, id_, threaded_});
  MessageHandler::ServedSpace served = served_space(some_cma);
  served.control = words_.own_block();
  served.control_bytes = control_bytes_;
  return fabric_->register_memory(served, data_bytes_, unit_);
}

void Space::close_fabric() { fabric_.reset(); }

void Space::finish(Agreed agreed) {
  lowest_with_data_ = agreed.lowest_with_data;
  AccumulateRules rules;
  rules.always_locked = agreed.some_cma;
  rules.choose_domains(fabric_ != nullptr && agreed.nic_atomics, agreed.single_elements);
  mapped_.set_rules(rules, fabric_ != nullptr ? &fabric_->atomics() : nullptr);
  cma_.set_rules(rules, fabric_ == nullptr, regions_ != nullptr);
  if (fabric_ != nullptr) {
    fabric_->agree({std::move(agreed.addresses), rules, agreed.same_bytes, agreed.same_units, regions_.get(),
                    regions_ != nullptr ? Regions::kFirst : 0});
  }
  words_.finish(ranks_, rules.by_nic, Process::instance().settings().value()->allows(RouteKind::kMapped),
                fabric_ != nullptr ? &fabric_->control() : nullptr);
  // The memory of a dynamic space may be detached before a queued put arrives.
  may_queue_puts_ = (uses_cma_ || node_handler_ != nullptr) && regions_ == nullptr;
  // Under these conditions the ranks of each node map each other's memory, and can change their method together. Only
  // these ranks and their message handlers combine elements in the memory of the node.
  if (!rules.always_locked && !agreed.some_unmapped && all_support_membarrier_) {
    std::byte* const first = segment_.control(0) + offsetof(ControlHeader, integers);
    mapped_.integers().allow_lock({first, control_bytes_, words_.node().size()}, threaded_);
  }
  segment_.published();
  why_.reset();
}

Space::~Space() {
  fabric_.reset();
  if (node_handler_ != nullptr) node_handler_->withdraw(id_);
}

OperationCounts& Space::count_by_target(bool threaded) {
  counts_ = std::make_unique<OperationCounts>(threaded);
  for (NodeTarget& target : words_.node().all()) words_.node().make_extra(target).counts = counts_->row(target.rank);
  mapped_.count_in(counts_.get());
  cma_.count_in(counts_.get());
  if (fabric_ != nullptr) fabric_->count_in(counts_.get());
  return *counts_;
}

void Space::expect_threads() {
  threaded_ = true;
  if (counts_ != nullptr) counts_->expect_threads();
  mapped_.expect_threads();
  cma_.expect_threads();
  if (fabric_ != nullptr) fabric_->expect_threads();
}

bool Space::uses(RouteKind kind) const {
  if (ranks_ == 1) return kind == RouteKind::kSelf;
  const NodeTargets& node = words_.node();
  if (kind == RouteKind::kFabric && static_cast<int>(node.size()) < ranks_) return true;
  return std::ranges::any_of(node.all(),
                             [&](const NodeTarget& each) { return each.rank != rank_ && node.route(each) == kind; });
}

Route& Space::route(int target) {
  const NodeTarget* const here = words_.node().find(target);
  if (here != nullptr && here->data != nullptr) [[likely]]
    return mapped_;
  if (here != nullptr && words_.node().route(*here) == RouteKind::kCma) return cma_;
  return *fabric_;
}

Status Space::flush_all() {
  Status queued = cma_.flush_all();
  Status status = fabric_ != nullptr ? fabric_->flush_all() : Status();
  (void)mapped_.flush_all();
  return queued ? std::move(status) : std::move(queued);
}

int Space::only_peer() {
  const int peer = 1 - rank_;
  return ranks_ == 2 && !shared_ && words_.changed_by_cpu() && !route(peer).immediate() ? peer : -1;
}

DeferredLocks* Space::deferred_locks(int target) {
  return shared_ || words_.mapped(target) || route(target).immediate() ? nullptr : fabric_->locks();
}

Result<Space::Extent> Space::extent(int target) {
  const NodeTarget* const here = words_.node().find(target);
  if (here != nullptr) return Extent{here->bytes, here->unit};
  return fabric_->extent(target);
}

Space::MappedData Space::mapped_data(int target) const {
  const NodeTarget* const here = words_.node().find(target);
  if (here == nullptr) return {};
  const NodeTargetExtra* const extra = words_.node().extra(*here);
  std::byte* const base = here->data != nullptr || extra == nullptr ? here->data : extra->memory;
  if (base == nullptr || (here->bytes == 0 && !contiguous_)) return {nullptr, 0, here->unit};
  return {base, here->bytes, here->unit};
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/make_space.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/process.hpp"
#include "transport/routes/fabric/fabric_route.hpp"
#include "transport/space/provider_agreement.hpp"
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

const Settings& settings() { return *Process::instance().settings().value(); }

}  // namespace

// The description of a rank's memory for its on-node peers.
struct SpaceMaker::Offer {
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

SpaceMaker::SpaceMaker(const SpaceMaking& making)
    : making_(making),
      private_(request_.private_data != nullptr || request_.dynamic),
      apart_(!request_.shared && !settings().allows(RouteKind::kMapped)),
      stale_word_(static_cast<std::uint32_t>((request_.control_bytes + 63) / 64 * 64)),
      control_bytes_(
          static_cast<std::uint32_t>(in_pages(stale_word_ + (request_.dynamic ? sizeof(std::uint64_t) : 0)))),
      space_(new Space(request_)) {}

Status SpaceMaker::make_memory(NodeGroup& node) {
  Status failed = making_.own != nullptr ? Status(*making_.own) : Status();
  const Offer offered = offer(node, failed);
  Result<NodeSegment> segment = NodeSegment();
  Status possible;
  // The leader makes the memory as soon as it has all offers.
  const auto lead = [&](const std::vector<Offer>& all) {
    NodeSegment::Announcement made;
    possible = check(node, all);
    if (possible) {
      segment = NodeSegment::lead(node, layout(all), made);
    } else {
      made.failed = 1 + static_cast<std::uint64_t>(possible.error().kind);
    }
    return made;
  };
  const auto [offers, announcement] = node.exchange_by_leader(offered, Process::instance(), lead);
  if (!failed) return failed;
  if (!node.leads()) {
    possible = check(node, offers);
    if (possible) segment = NodeSegment::join(node, layout(offers), announcement);
  }
  if (!possible) return possible;
  if (!segment) return segment.error();
  take_memory(std::move(segment.value()), node.index(), offered.handled);
  find_routes(node, offers);
  return {};
}

SpaceMaker::Offer SpaceMaker::offer(NodeGroup& node, Status& failed) {
  Offer own;
  own.allocated = private_ ? 0 : request_.data_bytes;
  own.data_bytes = request_.dynamic ? 0 : request_.data_bytes;
  own.unit = request_.unit;
  own.contiguous = request_.contiguous;
  own.alignment = request_.alignment;
  own.overcommit = request_.overcommit;
  if (failed && own.allocated > SIZE_MAX / 2 - control_bytes_)
    failed = Error{ErrorKind::kNoMemory, fmt::format("{} bytes are more than an address space", own.allocated)};
  if (!failed) {
    own.failed = 1 + static_cast<std::int32_t>(failed.error().kind);
    return own;
  }
  own.need = find_memory_need(control_bytes_ + (own.overcommit ? 0 : huge_pages().whole(own.allocated))).bytes;
  if (!private_) return own;
  space_->data_ = request_.dynamic ? reinterpret_cast<std::byte*>(Regions::kFirst)  // NOLINT(performance-no-int-to-ptr)
                                   : static_cast<std::byte*>(request_.private_data);
  own.data_place = reinterpret_cast<std::uint64_t>(space_->data_);
  if (node.members() == 1 || apart_) return own;
  if (!request_.dynamic) {
    if (auto place = Process::instance().shareable_memory().find(space_->data_, request_.data_bytes)) {
      own.data_fd = place->fd;
      own.data_place = place->offset;
      space_->exposed_ = std::move(place->users);
      return own;
    }
  }
  if (!settings().allows(RouteKind::kCma)) return own;
  if (const Result<NodeHandler*> handler = Process::instance().node_handler()) {
    Process::instance().peer_permission().need();  // the peers try it before they choose a route
    own.handled = true;
    node.set_handler(handler.value()->place());
  } else {
    log(LogLevel::kInfo, "no handler for the on-node peers: {}", handler.error().text);
  }
  return own;
}

// Checks that the node has the memory. The limits of memory concern all members.
Status SpaceMaker::check(const NodeGroup& node, std::span<const Offer> offers) const {
  std::vector<MemoryShare> shares;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].failed != 0) return Error{static_cast<ErrorKind>(offers[i].failed - 1), {}};
    shares.push_back({offers[i].need, node.member(static_cast<int>(i)).limits});
  }
  const std::uint64_t own = offers[static_cast<std::size_t>(node.index())].allocated;
  return check_memory_needs(find_memory_need(control_bytes_ + huge_pages().whole(own)), shares);
}

NodeSegment::Layout SpaceMaker::layout(std::span<const Offer> offers) const {
  NodeSegment::Layout made;
  made.control_bytes = control_bytes_;
  made.reserved = control_bytes_ <= kWholeControl ? control_bytes_ : kStartOfControl;
  made.contiguous = request_.shared && std::ranges::any_of(offers, &Offer::contiguous);
  for (const Offer& each : offers) {
    made.data.push_back(each.allocated);
    made.alignment = std::max(made.alignment, each.alignment);
    made.overcommit = made.overcommit || each.overcommit;
  }
  made.huge = huge_pages();
  return made;
}

void SpaceMaker::take_memory(NodeSegment segment, int index, bool handled) {
  Space& space = *space_;
  std::byte* const control = segment.control(index);
  if (!private_) {
    space.data_ = segment.data(index);
    const Status placed = place_on_nodes(space.data_, request_.data_bytes, request_.numa);
    if (!placed && Log::is_new("FARSIDE_NUMA"))
      log(LogLevel::kWarn, "FARSIDE_NUMA: the first use of a page decides: {}", placed.error().text);
  }
  space.segment_ = std::move(segment);
  ControlHeader& header = ControlHeader::of(control);
  new (&header.accumulate_lock) AccumulateLockWord{};
  new (&header.wake_event) WakeEvent;
  static const ProcessIdentity own_process = [] {
    const ProcessIdentity own = ProcessIdentity::own();
    AccumulateLockWord::held_here += AccumulateLockWord::kProcess * static_cast<std::uint32_t>(own.pid());
    return own;
  }();
  header.owner = own_process;
  new (&header.integers) IntegerWords;
  space.mapped_.integers().announce_in(header.integers);
  space.words_.begin(control);
  if (request_.dynamic) space.regions_ = std::make_unique<Regions>(space, stale_word_, space.ranks_);
  if (!handled) return;
  NodeHandler* const handler = Process::instance().node_handler().value();
  if (handler->publish(space.id_, served_space(true))) space.node_handler_ = handler;
}

MessageHandler::ServedSpace SpaceMaker::served_space(bool always_locked) {
  MessageHandler::ServedSpace served;
  served.base = space_->data_;
  served.bytes = request_.dynamic ? Regions::kBytes : request_.data_bytes;
  served.control = space_->words_.own_block();
  served.control_bytes = control_bytes_;
  served.lock = &ControlHeader::of(served.control).accumulate_lock;
  served.integers = &space_->mapped_.integers();
  served.always_locked = always_locked;
  served.ranks = static_cast<std::uint32_t>(space_->ranks_);
  served.attached = request_.dynamic ? &space_->regions_->own() : nullptr;
  return served;
}

void SpaceMaker::find_routes(NodeGroup& node, std::span<const Offer> offers) {
  Space& space = *space_;
  NodeTargets& targets = space.words_.node();
  std::vector<int> ranks;
  for (int i = 0; i < node.members(); ++i) {
    if (!apart_ || i == node.index()) ranks.push_back(node.member(i).rank);
  }
  targets.assign(ranks);
  space.contiguous_ = request_.shared && std::ranges::any_of(offers, &Offer::contiguous);
  vote.needs_fabric = static_cast<int>(ranks.size()) < space.ranks_;
  if (vote.needs_fabric && !apart_) why = "some rank is on another node";
  if (vote.needs_fabric && apart_) {
    why = settings().allows(RouteKind::kCma)
              ? "FARSIDE_ROUTES allows cma without mapped, by which cma reaches the control block"
              : "FARSIDE_ROUTES does not allow mapped";
  }
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const NodeMember member = node.member(static_cast<int>(i));
    if (apart_ && member.rank != space.rank_) continue;
    NodeTarget& target = *targets.find(member.rank);
    target.bytes = offers[i].data_bytes;
    target.unit = offers[i].unit;
    target.control = space.segment_.control(static_cast<int>(i));
    all_support_membarrier_ = all_support_membarrier_ && member.membarrier == 1;
    if (member.rank == space.rank_) {
      target.data = space.data_;
      continue;
    }
    std::byte* memory = space.segment_.data(static_cast<int>(i));
    std::string unreached = find_route(target, member, offers[i], memory);
    if (!unreached.empty()) target.control = nullptr;
    const bool not_shared = request_.shared && memory == nullptr;
    if ((!unreached.empty() && !vote.needs_fabric) || (not_shared && !unshared_))
      why = fmt::format("rank {}: {}", member.rank, unreached);
    vote.needs_fabric = vote.needs_fabric || !unreached.empty();
    vote.unmapped = vote.unmapped || !unreached.empty();
    unshared_ = unshared_ || not_shared;
    vote.uses_cma = vote.uses_cma || targets.route(target) == RouteKind::kCma;
  }
  space.segment_.forget_places();
}

// Returns why no route inside the node reaches the target, or nothing. `memory`: before the call, the address of the
// target's data if they lie in the segment; afterwards the address at which they are mapped, or null.
std::string SpaceMaker::find_route(NodeTarget& target, const NodeMember& member, const Offer& offer,
                                   std::byte*& memory) {
  NodeTargets& targets = space_->words_.node();
  if (offer.data_bytes == 0 && !request_.dynamic) {
    // There are no data to reach.
  } else if (offer.data_fd >= 0) {
    // From the page on in which the data begin.
    const std::uint64_t before = offer.data_place % in_pages(1);
    Result<Mapping> mapping =
        map_peer_segment(member.pid, offer.data_fd, before + offer.data_bytes, offer.data_place - before);
    memory = nullptr;
    if (!mapping) return mapping.error().text;
    memory = mapping.value().base() + before;
    targets.make_extra(target).mapping = std::move(mapping.value());
  } else if (offer.allocated == 0) {
    memory = nullptr;
    if (!settings().allows(RouteKind::kCma)) return "its memory is private and FARSIDE_ROUTES does not allow cma";
    if (!offer.handled) return "its memory is private and its process has no message handler";
    auto handler = PeerNodeHandler::find(member, request_.id, request_.rank);
    if (!handler) return handler.error().text;
    NodeTargetExtra& extra = targets.make_extra(target);
    extra.pid = member.pid;
    extra.address = offer.data_place;
    extra.lock = &ControlHeader::of(target.control).accumulate_lock;
    extra.handler = std::move(handler.value());
    return {};
  }
  if (settings().allows(RouteKind::kMapped)) {
    target.data = memory;
    return {};
  }
  // A shared space is mapped whatever the routes of operations are.
  targets.make_extra(target).memory = memory;
  return "FARSIDE_ROUTES does not allow mapped";
}

// Makes the memory accessible over the endpoint. If some rank needs the fabric, all ranks call this. `some_cma`: some
// rank uses cma. Errors: those of FabricRoute::register_memory().
Status SpaceMaker::open_fabric(Endpoint& endpoint, bool some_cma) {
  space_->fabric_ = std::make_unique<FabricRoute>(FabricRoute::Setup{
      endpoint, Process::instance(), space_->words_.wake_event(), space_->rank_, space_->id_, request_.threaded});
  const MessageHandler::ServedSpace served = served_space(some_cma);
  return space_->fabric_->register_memory(served, served.bytes, request_.unit);
}

std::unique_ptr<Space> SpaceMaker::finish(Agreed agreed) {
  Space& space = *space_;
  FabricRoute* const fabric = space.fabric_.get();
  space.lowest_with_data_ = agreed.lowest_with_data;
  AccumulateRules rules;
  rules.always_locked = vote.uses_cma;
  rules.choose_domains(fabric != nullptr && agreed.nic_atomics, !vote.rows);
  space.mapped_.set_rules(
      rules, [fabric](int rank, const DataOperation& operation) { fabric->control().atomic_at(rank, operation); });
  space.cma_.set_rules(rules, fabric == nullptr, request_.dynamic);
  if (fabric != nullptr) {
    FabricRoute::Agreed with_all{std::move(agreed.addresses), rules, agreed.same_bytes, agreed.same_units, {}, 0};
    if (Regions* const regions = space.regions_.get(); regions != nullptr) {
      with_all.regions = [regions](int rank, std::uint64_t address) { return regions->find(rank, address); };
      with_all.first_address = Regions::kFirst;
    }
    fabric->agree(std::move(with_all));
  }
  space.words_.finish(space.ranks_, rules.by_nic, settings().allows(RouteKind::kMapped),
                      fabric != nullptr ? &fabric->control() : nullptr);
  // The memory of a dynamic space may be detached before a queued put arrives.
  space.may_queue_puts_ = (space.uses(RouteKind::kCma) || space.node_handler_ != nullptr) && !request_.dynamic;
  // Under these conditions the ranks of each node map each other's memory, or none does, and can change their method
  // together. Only these ranks and their message handlers combine elements in the memory of the node.
  if (!rules.always_locked && !vote.unmapped && all_support_membarrier_) {
    std::byte* const first = apart_ ? space.words_.own_block() : space.segment_.control(0);
    space.mapped_.integers().allow_lock(
        {first + offsetof(ControlHeader, integers), control_bytes_, space.words_.node().size()}, request_.threaded);
  }
  space.segment_.published();
  return std::move(space_);
}

// Called when the rank knows that the fabric is needed. `why` is empty if only another rank needs it.
Status SpaceMaker::allow_fabric() const {
  if (!why.empty()) log(LogLevel::kInfo, "{}: the fabric is needed: {}", making_.call, why);
  if (settings().allows(RouteKind::kFabric)) return {};
  return Error{ErrorKind::kNoRoute, fmt::format("FARSIDE_ROUTES does not allow fabric, which is needed for {}",
                                                why.empty() ? "another rank" : why)};
}

void SpaceMaker::gather(Group& group) {
  // The endpoint that the group uses already, of this process; none before the first space that needs the fabric.
  const UsedEndpoint used =
      group.find_endpoint(making_.endpoint != nullptr ? std::vector<UsedEndpoint>{{making_.endpoint, 1}}
                                                      : Process::instance().endpoints_in_use());
  vote.callers = making_.flags;
  vote.same_bytes = making_.same_bytes;
  vote.same_units = making_.same_units;
  vote.no_endpoint = used.endpoint == nullptr;
  vote.providers = used.provider;
  vote.not_opened = true;
  vote.rows = !request_.single_elements;
  vote.first_is_empty = request_.rank == 0 && request_.data_bytes == 0;
  Status made = make_memory(group.node());
  if (making_.own != nullptr) {
    status_ = *making_.own;
  } else if (!made && !made.error().text.empty()) {
    status_ = Error{made.error().kind, fmt::format("memory of the window: {}", made.error().text)};
  }
  if (!made) return;
  if (unshared_) status_ = Error{ErrorKind::kNoRoute, why};
  if (vote.needs_fabric && used.endpoint != nullptr && request_.private_data == nullptr && !request_.dynamic) {
    if (status_) status_ = allow_fabric();
    if (status_) {
      vote.not_opened = !open_fabric(*used.endpoint, false);
      vote.no_nic_atomics = !used.endpoint->nic_atomics();
      // agree_on_fabric() fails in the same way, or takes another provider.
      if (vote.not_opened) space_->fabric_.reset();
    }
  }
  if (status_ && making_.besides != nullptr) status_ = *making_.besides;
}

// Returns whether the endpoints of all ranks have adapter atomics. The vote is that of all ranks.
Result<bool> SpaceMaker::agree_on_fabric(Group& group) {
  const auto open = [&](Endpoint& endpoint) { return open_fabric(endpoint, vote.uses_cma); };
  // FARSIDE_ROUTES is the same on all ranks, so that all of them return here, or none.
  if (Status allowed = allow_fabric(); !allowed) return allowed.error();
  if (making_.endpoint == nullptr) {
    return ProviderAgreement{.used = vote.one_provider(),
                             .id = request_.id,
                             .open = open,
                             .close = [&] { space_->fabric_.reset(); },
                             .trial = nullptr}
        .carry_out(group);
  }
  Status status = open(*making_.endpoint);
  if (vote.one_provider() == 0) {
    Status gathered = group.gather_addresses(making_.endpoint, Process::instance());
    if (status) status = std::move(gathered);
  }
  Vote atomics;
  atomics.no_nic_atomics = !making_.endpoint->nic_atomics();
  const Result<Group::Combined> accessible = group.agree(status, std::bit_cast<std::uint64_t>(atomics));
  if (!accessible) return accessible.error();
  group.keep_addresses(true);
  return !std::bit_cast<Vote>(accessible.value().flags).no_nic_atomics;
}

// Collective, if a promise of some rank is broken: fails on each rank that differs from rank 0, or reports it there.
Status SpaceMaker::check_promises(Group& group, bool units_broken, bool bytes_broken) const {
  const std::array own{std::uint64_t{request_.unit}, request_.data_bytes};
  std::array first = own;
  if (Status carried = group.broadcast(std::as_writable_bytes(std::span(first)), 0); !carried) return carried;
  const bool by_unit = units_broken && own[0] != first[0];
  if (!by_unit && !(bytes_broken && own[1] != first[1])) return {};
  std::string broken = fmt::format(
      "{} was promised, but rank {} has {} where rank 0 has {}; leave it out of the info (MPI 4.0 section 12.2.1)",
      by_unit ? "same_disp_unit" : "same_size", group.rank(), own[by_unit ? 0 : 1], first[by_unit ? 0 : 1]);
  const Check check = Process::instance().settings().value()->check;
  if (check == Check::kOn || check == Check::kStrict) return Error{ErrorKind::kAssertion, std::move(broken)};
  if (check == Check::kWarn && Log::is_new(broken)) log(LogLevel::kWarn, "{}: {}; ignored", making_.call, broken);
  return {};
}

// Collective if rank 0 has no data and another rank has. Returns the lowest rank with data; -1 if none has any.
Result<int> SpaceMaker::find_lowest_with_data(Group& group, bool same_bytes) const {
  if (!vote.first_is_empty) return 0;
  if (same_bytes) return -1;
  int lowest = request_.data_bytes > 0 ? request_.rank : request_.ranks;
  if (Status carried = group.take_lowest(lowest); !carried) return carried.error();
  return lowest;
}

// Collective: all ranks return the same, or errors of the same kind. The vote becomes that of all ranks.
Result<SpaceMaker::Agreed> SpaceMaker::agree(Group& group) {
  const Result<Group::Combined> combined =
      group.agree(status_, std::bit_cast<std::uint64_t>(vote),
                  {request_.data_bytes, ~request_.data_bytes, Group::pair(request_.unit)});
  if (!combined) return combined.error();
  const Group::Words& words = combined.value().words;
  vote = std::bit_cast<Vote>(combined.value().flags);
  Agreed agreed;
  agreed.same_bytes = (words[0] & words[1]) == 0;
  agreed.same_units = Group::is_equal(words[2]);
  const bool units_broken = vote.same_units && !agreed.same_units;
  const bool bytes_broken = vote.same_bytes && !agreed.same_bytes;
  if (units_broken || bytes_broken) {
    const auto kept = group.agree(check_promises(group, units_broken, bytes_broken));
    if (!kept) return kept.error();
  }
  const Result<int> lowest = find_lowest_with_data(group, agreed.same_bytes);
  if (!lowest) return lowest.error();
  agreed.lowest_with_data = lowest.value();
  if (!vote.needs_fabric) return agreed;
  agreed.nic_atomics = !vote.no_nic_atomics;
  if (vote.not_opened || vote.uses_cma || vote.one_provider() == 0) {
    const Result<bool> nic_atomics = agree_on_fabric(group);
    if (!nic_atomics) return nic_atomics.error();
    agreed.nic_atomics = nic_atomics.value();
  }
  agreed.addresses = group.addresses();
  return agreed;
}

Result<MadeSpace> SpaceMaker::make(Group& group) {
  gather(group);
  Result<Agreed> agreed = agree(group);
  if (!agreed) return agreed.error();
  const bool same_bytes = agreed.value().same_bytes, same_units = agreed.value().same_units;
  return MadeSpace{finish(std::move(agreed.value())), vote.callers, same_bytes, same_units};
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/make_space.hpp"

#include <algorithm>
#include <array>
#include <bit>
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

SpaceMaker::SpaceMaker(const Space::Request& request)
    : request_(request),
      private_(request.private_data != nullptr || request.dynamic),
      apart_(!request.shared && !settings().allows(RouteKind::kMapped)),
      stale_word_(static_cast<std::uint32_t>((request.control_bytes + 63) / 64 * 64)),
      control_bytes_(static_cast<std::uint32_t>(in_pages(stale_word_ + (request.dynamic ? sizeof(std::uint64_t) : 0)))),
      space_(new Space(request)) {}

Status SpaceMaker::make_memory(NodeGroup& node, const Error* own) {
  Status failed = own != nullptr ? Status(*own) : Status();
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
      made.failed = 1 + static_cast<std::int32_t>(possible.error().kind);
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
  if (!private_) space.data_ = segment.data(index);
  space.segment_ = std::move(segment);
  ControlHeader& header = ControlHeader::of(control);
  new (&header.accumulate_lock) AccumulateLockWord{};
  new (&header.wake_event) WakeEvent;
  static const ProcessIdentity own_process = ProcessIdentity::own();
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
  needs_fabric = static_cast<int>(ranks.size()) < space.ranks_;
  if (needs_fabric && !apart_) why = "some rank is on another node";
  if (needs_fabric && apart_) {
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
    if ((!unreached.empty() && !needs_fabric) || (not_shared && !unshared))
      why = fmt::format("rank {}: {}", member.rank, unreached);
    needs_fabric = needs_fabric || !unreached.empty();
    some_unmapped = some_unmapped || !unreached.empty();
    unshared = unshared || not_shared;
    uses_cma = uses_cma || targets.route(target) == RouteKind::kCma;
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

Status SpaceMaker::open_fabric(Endpoint& endpoint, bool some_cma) {
  space_->fabric_ = std::make_unique<FabricRoute>(FabricRoute::Setup{
      endpoint, Process::instance(), space_->words_.wake_event(), space_->rank_, space_->id_, request_.threaded});
  const MessageHandler::ServedSpace served = served_space(some_cma);
  return space_->fabric_->register_memory(served, served.bytes, request_.unit);
}

void SpaceMaker::close_fabric() { space_->fabric_.reset(); }

std::unique_ptr<Space> SpaceMaker::finish(Agreed agreed) {
  Space& space = *space_;
  FabricRoute* const fabric = space.fabric_.get();
  space.lowest_with_data_ = agreed.lowest_with_data;
  AccumulateRules rules;
  rules.always_locked = agreed.some_cma;
  rules.choose_domains(fabric != nullptr && agreed.nic_atomics, agreed.single_elements);
  space.mapped_.set_rules(rules, fabric != nullptr ? &fabric->control() : nullptr);
  space.cma_.set_rules(rules, fabric == nullptr, request_.dynamic);
  if (fabric != nullptr) {
    fabric->agree({std::move(agreed.addresses), rules, agreed.same_bytes, agreed.same_units, space.regions_.get(),
                   request_.dynamic ? Regions::kFirst : 0});
  }
  space.words_.finish(space.ranks_, rules.by_nic, settings().allows(RouteKind::kMapped),
                      fabric != nullptr ? &fabric->control() : nullptr);
  // The memory of a dynamic space may be detached before a queued put arrives.
  space.may_queue_puts_ = (uses_cma || space.node_handler_ != nullptr) && !request_.dynamic;
  // Under these conditions the ranks of each node map each other's memory, or none does, and can change their method
  // together. Only these ranks and their message handlers combine elements in the memory of the node.
  if (!rules.always_locked && !agreed.some_unmapped && all_support_membarrier_) {
    std::byte* const first = apart_ ? space.words_.own_block() : space.segment_.control(0);
    space.mapped_.integers().allow_lock(
        {first + offsetof(ControlHeader, integers), control_bytes_, space.words_.node().size()}, request_.threaded);
  }
  space.segment_.published();
  return std::move(space_);
}

namespace {

// What a rank says of itself, in the flags of the agreement. The vote of all ranks has each bit that one of them has.
struct Vote {
  std::uint64_t callers : SpaceMaking::kFlags = 0;
  bool needs_fabric : 1 = false;
  bool uses_cma : 1 = false;
  bool no_endpoint : 1 = false;     // the rank knows no endpoint that the group uses
  bool no_nic_atomics : 1 = false;  // the rank's endpoint has no adapter atomics
  bool not_opened : 1 = false;      // the rank has not opened the fabric for this space
  bool rows : 1 = false;            // the rank does not say that accumulates are single elements
  bool unmapped : 1 = false;        // the rank reaches an on-node peer by the fabric
  bool first_is_empty : 1 = false;  // rank 0 has no data
  bool same_bytes : 1 = false;      // the rank has promised this of all ranks
  bool same_units : 1 = false;
  std::uint64_t providers : Agreement::kFlags - SpaceMaking::kFlags - 10 = 0;  // that of the endpoint
  std::uint64_t failures : 64 - Agreement::kFlags = 0;                         // Agreement's own

  // The provider of the endpoint that the group uses, according to all ranks; 0 if there is none.
  Providers one_provider() const {
    return !no_endpoint && std::has_single_bit(std::uint64_t{providers}) ? static_cast<Providers>(providers) : 0;
  }
};
static_assert(sizeof(Vote) == sizeof(std::uint64_t));

// This rank's part: its memory, why it has none, and what it says of itself.
struct Own {
  SpaceMaker maker;
  Status status;
  Vote vote;
};

// The endpoint that the group uses already, of this process; none before the first space that needs the fabric.
UsedEndpoint used_endpoint(const SpaceMaking& making, GroupPeers& peers) {
  std::vector<UsedEndpoint> all;
  if (making.endpoint != nullptr) {
    all.push_back({making.endpoint, 1});
  } else {
    for (const auto& [provider, fabric] : Process::instance().endpoints_in_use()) all.push_back({fabric, provider});
  }
  return peers.find_endpoint(making.request.rank, all);
}

// Called when the rank knows that the fabric is needed. `why` is empty if only another rank needs it.
Status allow_fabric(const char* call, const std::string& why) {
  if (!why.empty()) log(LogLevel::kInfo, "{}: the fabric is needed: {}", call, why);
  if (settings().allows(RouteKind::kFabric)) return {};
  return Error{ErrorKind::kNoRoute, fmt::format("FARSIDE_ROUTES does not allow fabric, which is needed for {}",
                                                why.empty() ? "another rank" : why)};
}

void gather(const SpaceMaking& making, GroupPeers& peers, Own& own) {
  const Space::Request& request = making.request;
  const UsedEndpoint used = used_endpoint(making, peers);
  own.vote.callers = making.flags;
  own.vote.same_bytes = making.same_bytes;
  own.vote.same_units = making.same_units;
  own.vote.no_endpoint = used.endpoint == nullptr;
  own.vote.providers = used.provider;
  own.vote.not_opened = true;
  own.vote.rows = !request.single_elements;
  own.vote.first_is_empty = request.rank == 0 && request.data_bytes == 0;
  Status made = own.maker.make_memory(peers.node(), making.own);
  if (making.own != nullptr) {
    own.status = *making.own;
  } else if (!made && !made.error().text.empty()) {
    own.status = Error{made.error().kind, fmt::format("memory of the window: {}", made.error().text)};
  }
  if (!made) return;
  own.vote.needs_fabric = own.maker.needs_fabric;
  own.vote.uses_cma = own.maker.uses_cma;
  own.vote.unmapped = own.maker.some_unmapped;
  if (own.maker.unshared) own.status = Error{ErrorKind::kNoRoute, own.maker.why};
  if (own.maker.needs_fabric && used.endpoint != nullptr && request.private_data == nullptr && !request.dynamic) {
    if (own.status) own.status = allow_fabric(making.call, own.maker.why);
    if (own.status) {
      own.vote.not_opened = !own.maker.open_fabric(*used.endpoint, false);
      own.vote.no_nic_atomics = !used.endpoint->nic_atomics();
      // open_fabric() below fails in the same way, or takes another provider.
      if (own.vote.not_opened) own.maker.close_fabric();
    }
  }
  if (own.status && making.besides != nullptr) own.status = *making.besides;
}

// Returns whether the endpoints of all ranks have adapter atomics. `all`: the vote of all ranks.
Result<bool> open_fabric(const SpaceMaking& making, SpaceMaker& maker, const Vote& all, Agreement& agreement,
                         GroupPeers& peers) {
  const auto open = [&](Endpoint& endpoint) { return maker.open_fabric(endpoint, all.uses_cma); };
  // FARSIDE_ROUTES is the same on all ranks, so that all of them return here, or none.
  if (Status allowed = allow_fabric(making.call, maker.why); !allowed) return allowed.error();
  if (making.endpoint == nullptr) {
    return ProviderAgreement{.used = all.one_provider(),
                             .id = making.request.id,
                             .node_members = static_cast<std::size_t>(peers.node().members()),
                             .open = open,
                             .close = [&] { maker.close_fabric(); },
                             .trial = nullptr}
        .carry_out(agreement, peers);
  }
  Status status = open(*making.endpoint);
  if (all.one_provider() == 0) {
    Status gathered = peers.gather_addresses(agreement.group(), making.endpoint, Process::instance());
    if (status) status = std::move(gathered);
  }
  Vote vote;
  vote.no_nic_atomics = !making.endpoint->nic_atomics();
  const Result<Agreement::Combined> accessible = agreement.agree(status, std::bit_cast<std::uint64_t>(vote));
  if (!accessible) return accessible.error();
  peers.keep_addresses(true);
  return !std::bit_cast<Vote>(accessible.value().flags).no_nic_atomics;
}

// Collective, if a promise of some rank is broken: fails on each rank that differs from rank 0.
Status check_promises(const Space::Request& request, bool units_broken, bool bytes_broken, Group& group) {
  const std::array own{std::uint64_t{request.unit}, request.data_bytes};
  std::array first = own;
  if (Status carried = group.broadcast(std::as_writable_bytes(std::span(first)), 0); !carried) return carried;
  const bool by_unit = units_broken && own[0] != first[0];
  if (!by_unit && !(bytes_broken && own[1] != first[1])) return {};
  return Error{ErrorKind::kAssertion,
               fmt::format("{} was promised, but rank {} has {} where rank 0 has {}; leave it out of the info "
                           "(MPI 4.0 section 12.2.1)",
                           by_unit ? "same_disp_unit" : "same_size", group.rank(), own[by_unit ? 0 : 1],
                           first[by_unit ? 0 : 1])};
}

// Collective if rank 0 has no data and another rank has. Returns the lowest rank with data; -1 if none has any.
Result<int> find_lowest_with_data(const Space::Request& request, bool same_bytes, const Vote& all, Group& group) {
  if (!all.first_is_empty) return 0;
  if (same_bytes) return -1;
  int lowest = request.data_bytes > 0 ? request.rank : request.ranks;
  if (Status carried = group.take_lowest(lowest); !carried) return carried.error();
  return lowest;
}

// Collective: all ranks return the same, or errors of the same kind. The vote becomes that of all ranks.
Result<SpaceMaker::Agreed> agree(const SpaceMaking& making, Own& own, Agreement& agreement, GroupPeers& peers) {
  const Space::Request& request = making.request;
  const Result<Agreement::Combined> combined =
      agreement.agree(own.status, std::bit_cast<std::uint64_t>(own.vote),
                      {request.data_bytes, ~request.data_bytes, Agreement::pair(request.unit)});
  if (!combined) return combined.error();
  const Agreement::Words& words = combined.value().words;
  const Vote all = own.vote = std::bit_cast<Vote>(combined.value().flags);
  SpaceMaker::Agreed agreed;
  agreed.same_bytes = (words[0] & words[1]) == 0;
  agreed.same_units = Agreement::is_equal(words[2]);
  agreed.some_cma = all.uses_cma;
  agreed.some_unmapped = all.unmapped;
  agreed.single_elements = !all.rows;
  const bool units_broken = all.same_units && !agreed.same_units, bytes_broken = all.same_bytes && !agreed.same_bytes;
  if (units_broken || bytes_broken) {
    const auto kept = agreement.agree(check_promises(request, units_broken, bytes_broken, agreement.group()));
    if (!kept) return kept.error();
  }
  const Result<int> lowest = find_lowest_with_data(request, agreed.same_bytes, all, agreement.group());
  if (!lowest) return lowest.error();
  agreed.lowest_with_data = lowest.value();
  if (!all.needs_fabric) return agreed;
  agreed.nic_atomics = !all.no_nic_atomics;
  if (all.not_opened || all.uses_cma || all.one_provider() == 0) {
    const Result<bool> nic_atomics = open_fabric(making, own.maker, all, agreement, peers);
    if (!nic_atomics) return nic_atomics.error();
    agreed.nic_atomics = nic_atomics.value();
  }
  agreed.addresses = peers.addresses();
  return agreed;
}

}  // namespace

Result<MadeSpace> make_space(const SpaceMaking& making, Agreement& agreement, GroupPeers& peers) {
  Own own{SpaceMaker(making.request), {}, {}};
  gather(making, peers, own);
  Result<SpaceMaker::Agreed> agreed = agree(making, own, agreement, peers);
  if (!agreed) return agreed.error();
  return MadeSpace{own.maker.finish(std::move(agreed.value())), own.vote.callers};
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/make_space.hpp"

#include <array>
#include <bit>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/space/provider_agreement.hpp"

namespace farside {
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
  std::unique_ptr<Space> space;
  Status status;
  Vote vote;
};

// The endpoint that the group uses already, of this process; none before the first space that needs the fabric.
struct UsedEndpoint {
  Endpoint* endpoint = nullptr;
  Providers provider = 0;
};
UsedEndpoint used_endpoint(const SpaceMaking& making, GroupPeers& peers) {
  std::vector<UsedEndpoint> all;
  std::vector<Endpoint*> endpoints;
  if (making.endpoint != nullptr) all.push_back({making.endpoint, 1});
  for (const Process::EndpointInUse& each : Process::instance().endpoints_in_use()) {
    if (making.endpoint == nullptr && each.fabric != nullptr) all.push_back({each.fabric, each.provider});
  }
  for (const UsedEndpoint& each : all) endpoints.push_back(each.endpoint);
  const std::size_t index = peers.find_endpoint(making.request.rank, endpoints);
  return index < all.size() ? all[index] : UsedEndpoint();
}

// Called when the rank knows that the fabric is needed. `why` is empty if only another rank needs it.
Status allow_fabric(const char* call, const std::string& why) {
  if (!why.empty()) log(LogLevel::kInfo, "{}: the fabric is needed: {}", call, why);
  if (Process::instance().settings().value()->allows(RouteKind::kFabric)) return {};
  return Error{ErrorKind::kNoRoute, fmt::format("FARSIDE_ROUTES does not allow fabric, which is needed for {}",
                                                why.empty() ? "another rank" : why)};
}

Own gather(const SpaceMaking& making, GroupPeers& peers) {
  const Space::Request& request = making.request;
  const UsedEndpoint used = used_endpoint(making, peers);
  Own own;
  if (making.own != nullptr) {
    own.status = *making.own;
    Space::decline(making.own->kind, peers.node(), Process::instance());
  } else if (Result<std::unique_ptr<Space>> made = Space::make(request, peers.node()); made) {
    own.space = std::move(made.value());
  } else if (!made.error().text.empty()) {
    own.status = Error{made.error().kind, fmt::format("memory of the window: {}", made.error().text)};
  }
  own.vote.callers = making.flags;
  own.vote.same_bytes = making.same_bytes;
  own.vote.same_units = making.same_units;
  own.vote.no_endpoint = used.endpoint == nullptr;
  own.vote.providers = used.provider;
  own.vote.not_opened = true;
  own.vote.rows = !request.single_elements;
  own.vote.first_is_empty = request.rank == 0 && request.data_bytes == 0;
  if (own.space == nullptr) return own;
  const Space::Reach reach = own.space->reach();
  own.vote.needs_fabric = reach.needs_fabric;
  own.vote.uses_cma = reach.uses_cma;
  own.vote.unmapped = reach.some_unmapped;
  if (reach.unshared) own.status = Error{ErrorKind::kNoRoute, reach.why};
  if (reach.needs_fabric && used.endpoint != nullptr && request.private_data == nullptr && !request.dynamic) {
    if (own.status) own.status = allow_fabric(making.call, reach.why);
    if (own.status) {
      own.vote.not_opened = !own.space->open_fabric(*used.endpoint, false);
      own.vote.no_nic_atomics = !used.endpoint->nic_atomics();
      // open_fabric() below fails in the same way, or takes another provider.
      if (own.vote.not_opened) own.space->close_fabric();
    }
  }
  if (own.status && making.besides != nullptr) own.status = *making.besides;
  return own;
}

// Returns whether the endpoints of all ranks have adapter atomics. `all`: the vote of all ranks.
Result<bool> open_fabric(const SpaceMaking& making, Space& space, const Vote& all, Agreement& agreement,
                         GroupPeers& peers) {
  const auto open = [&](Endpoint& endpoint) { return space.open_fabric(endpoint, all.uses_cma); };
  // FARSIDE_ROUTES is the same on all ranks, so that all of them return here, or none.
  const Space::Reach reach = space.reach();
  if (Status allowed = allow_fabric(making.call, reach.needs_fabric ? reach.why : ""); !allowed) return allowed.error();
  if (making.endpoint == nullptr) {
    return ProviderAgreement{.used = all.one_provider(),
                             .id = making.request.id,
                             .node_members = static_cast<std::size_t>(peers.node().members()),
                             .open = open,
                             .close = [&] { space.close_fabric(); },
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

// Returns the lowest rank with data; -1 if none has any. All ranks call it, with the same `all`. Cost: nothing
// unless rank 0 has no data and another one has; then one agreement for each kDigit bits of a rank, the highest first.
// In each agreement, the ranks with data whose higher digits are the lowest so far contribute their next digit.
Result<int> find_lowest_with_data(const Space::Request& request, bool same_bytes, const Vote& all,
                                  Agreement& agreement) {
  if (!all.first_is_empty) return 0;
  if (same_bytes) return -1;
  constexpr int kDigit = 6;
  static_assert(1 << kDigit == std::numeric_limits<std::uint64_t>::digits);
  const auto own = static_cast<unsigned>(request.rank);
  const int bits = std::bit_width(static_cast<unsigned>(request.ranks - 1));
  unsigned lowest = 0;  // its digits above `shift`
  for (int shift = (bits - 1) / kDigit * kDigit; shift >= 0; shift -= kDigit) {
    const bool among = request.data_bytes > 0 && own >> shift >> kDigit == lowest;
    const std::uint64_t digit = std::uint64_t{among} << (own >> shift & ((1U << kDigit) - 1));
    const Result<Agreement::Combined> digits = agreement.agree({}, 0, {digit, 0, 0});
    if (!digits) return digits.error();
    lowest = lowest << kDigit | static_cast<unsigned>(std::countr_zero(digits.value().words[0]));
  }
  return static_cast<int>(lowest);
}

// Collective: all ranks return the same, or errors of the same kind. The vote becomes that of all ranks.
Result<Space::Agreed> agree(const SpaceMaking& making, Own& own, Agreement& agreement, GroupPeers& peers) {
  const Space::Request& request = making.request;
  const Result<Agreement::Combined> combined =
      agreement.agree(own.status, std::bit_cast<std::uint64_t>(own.vote),
                      {request.data_bytes, ~request.data_bytes, Agreement::pair(request.unit)});
  if (!combined) return combined.error();
  const Agreement::Words& words = combined.value().words;
  const Vote all = own.vote = std::bit_cast<Vote>(combined.value().flags);
  Space::Agreed agreed;
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
  const Result<int> lowest = find_lowest_with_data(request, agreed.same_bytes, all, agreement);
  if (!lowest) return lowest.error();
  agreed.lowest_with_data = lowest.value();
  if (!all.needs_fabric) return agreed;
  agreed.nic_atomics = !all.no_nic_atomics;
  if (all.not_opened || all.uses_cma || all.one_provider() == 0) {
    const Result<bool> nic_atomics = open_fabric(making, *own.space, all, agreement, peers);
    if (!nic_atomics) return nic_atomics.error();
    agreed.nic_atomics = nic_atomics.value();
  }
  agreed.addresses = peers.addresses();
  return agreed;
}

}  // namespace

Result<MadeSpace> make_space(const SpaceMaking& making, Agreement& agreement, GroupPeers& peers) {
  Own own = gather(making, peers);
  Result<Space::Agreed> agreed = agree(making, own, agreement, peers);
  if (!agreed) return agreed.error();
  own.space->finish(std::move(agreed.value()));
  return MadeSpace{std::move(own.space), own.vote.callers, own.vote.needs_fabric};
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/make_space.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "transport/fabric/fabric.hpp"
#include "transport/space/provider_agreement.hpp"

namespace farside {
namespace {

// What a rank says about itself, behind the caller's flags.
constexpr std::uint64_t kNeedsFabric = 1 << 16;
constexpr std::uint64_t kUsesCma = 1 << 17;
constexpr std::uint64_t kNoEndpoint = 1 << 18;     // the rank knows no endpoint that the group uses
constexpr std::uint64_t kNoNicAtomics = 1 << 19;   // the rank's endpoint has no adapter atomics
constexpr std::uint64_t kNotOpened = 1 << 20;      // the rank has not opened the fabric for this space
constexpr std::uint64_t kRows = 1 << 21;           // the rank does not say that accumulates are single elements
constexpr std::uint64_t kNoSecondRail = 1 << 22;   // the rank has no second rail that this space can use
constexpr std::uint64_t kUnmapped = 1 << 23;       // the rank reaches an on-node peer by the fabric
constexpr std::uint64_t kFirstIsEmpty = 1 << 24;   // rank 0 has no data
constexpr std::uint64_t kFirstProvider = 1 << 25;  // the provider of that endpoint; also the following bits
constexpr std::uint64_t kAllFlags = (std::uint64_t{1} << Agreement::kFlags) - 1;

Providers providers_in(std::uint64_t all_flags) {
  return static_cast<Providers>((all_flags & kAllFlags) / kFirstProvider);
}

// Returns the provider of the endpoint that the group uses, according to all ranks; 0 if there is none.
Providers one_provider(std::uint64_t all_flags) {
  return (all_flags & kNoEndpoint) == 0 && std::has_single_bit(providers_in(all_flags)) ? providers_in(all_flags) : 0;
}

// The endpoint that the group uses already, of this process; none before the first space that needs the fabric.
struct UsedEndpoint {
  Endpoint* endpoint = nullptr;
  Providers provider = 0;
};
UsedEndpoint used_endpoint(const SpaceMaking& making, GroupPeers& peers) {
  std::array<UsedEndpoint, Process::kMostEndpoints> all;
  if (making.endpoint != nullptr) {
    all.front() = {making.endpoint, 1};
  } else {
    std::ranges::transform(Process::instance().endpoints_in_use(), all.begin(), [](const Process::EndpointInUse& each) {
      return UsedEndpoint{each.fabric, each.provider};
    });
  }
  std::array<Endpoint*, all.size()> endpoints;
  std::ranges::transform(all, endpoints.begin(), &UsedEndpoint::endpoint);
  const auto count = static_cast<std::size_t>(std::ranges::find(endpoints, nullptr) - endpoints.begin());
  const std::size_t index = peers.find_endpoint(making.request.rank, std::span(endpoints).first(count));
  return index < count ? all[index] : UsedEndpoint();
}

Error in_words(const char* what, const Error& error) { return {error.kind, fmt::format("{}: {}", what, error.text)}; }

// Returns flags for the features of the endpoint that the rank cannot use. A second rail is tried only when a group
// begins to use the endpoint; without a successful trial it is not used.
std::uint64_t lacks(const Result<EndpointUse>& use, const Endpoint& endpoint) {
  const SecondRail* const rail = endpoint.second_rail();
  return (use && use.value().nic_atomics ? 0 : kNoNicAtomics) |
         (use && use.value().second_rails && rail != nullptr && rail->usable() ? 0 : kNoSecondRail);
}
EndpointUse used_by_all(std::uint64_t all_flags) {
  return {(all_flags & kNoNicAtomics) == 0, (all_flags & kNoSecondRail) == 0, {}};
}

// Step 2. Returns what the endpoints of all ranks have. `all_flags`: the flags of all ranks.
Result<EndpointUse> open_fabric(const SpaceMaking& making, Space& space, std::uint64_t all_flags, Agreement& agreement,
                                GroupPeers& peers) {
  const auto open = [&](Endpoint& endpoint) { return space.open_fabric(endpoint, (all_flags & kUsesCma) != 0); };
  // FARSIDE_ROUTES is the same on all ranks, so that all of them return here, or none.
  if (Status allowed = making.allow_fabric(space.reach().needs_fabric ? space.reach().why : std::string()); !allowed) {
    const Result<Agreement::Combined> none = agreement.agree(allowed);
    return none ? allowed.error() : none.error();
  }
  if (making.endpoint == nullptr) {
    return ProviderAgreement{.used = one_provider(all_flags),
                             .id = making.request.id,
                             .node_members = static_cast<std::size_t>(peers.node().members()),
                             .open = open,
                             .close = [&] { space.close_fabric(); },
                             .trial = nullptr}
        .carry_out(agreement, peers);
  }
  const Result<EndpointUse> opened = open(*making.endpoint);
  Status status = opened.status();
  if (one_provider(all_flags) == 0) {
    Status gathered = peers.gather_addresses(agreement.group(), making.endpoint, Process::instance());
    if (status) status = std::move(gathered);
  }
  const Result<Agreement::Combined> accessible = agreement.agree(status, lacks(opened, *making.endpoint));
  if (!accessible) return accessible.error();
  peers.keep_addresses(true);
  return used_by_all(accessible.value().flags);
}

// Returns the lowest rank with data; -1 if none has any. All ranks call it, with the same `all_flags`. Cost: nothing
// unless rank 0 has no data and another one has; then one agreement for each kDigit bits of a rank, the highest first.
// In each agreement, the ranks with data whose higher digits are the lowest so far contribute their next digit.
Result<int> find_lowest_with_data(const Space::Request& request, bool same_bytes, std::uint64_t all_flags,
                                  Agreement& agreement) {
  if ((all_flags & kFirstIsEmpty) == 0) return 0;
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

}  // namespace

Result<MadeSpace> make_space(const SpaceMaking& making, Agreement& agreement, GroupPeers& peers) {
  Process& process = Process::instance();
  const Space::Request& request = making.request;
  const UsedEndpoint used = used_endpoint(making, peers);
  std::unique_ptr<Space> space;
  Status status;
  if (making.own == nullptr) {
    Result<std::unique_ptr<Space>> made = Space::make(request, peers.node());
    if (made) {
      space = std::move(made.value());
    } else if (!made.error().text.empty()) {
      status = in_words("memory of the window", made.error());
    }
  } else {
    status = *making.own;
    Space::decline(making.own->kind, peers.node(), process);
  }
  std::uint64_t flags = making.flags;
  flags |= used.endpoint == nullptr ? kNoEndpoint : used.provider * kFirstProvider;
  // Step 2 precedes the agreement where this rank knows enough for it.
  bool opened = false;
  if (space != nullptr) {
    const Space::Reach reach = space->reach();
    flags |= (reach.needs_fabric ? kNeedsFabric : 0) | (reach.uses_cma ? kUsesCma : 0) |
             (reach.some_unmapped ? kUnmapped : 0);
    if (reach.unshared) status = Error{ErrorKind::kNoRoute, reach.why};
    opened = reach.needs_fabric && used.endpoint != nullptr && request.private_data == nullptr && !request.dynamic;
    if (status && opened) status = making.allow_fabric(reach.why);
    if (status && opened) {
      const Result<EndpointUse> use = space->open_fabric(*used.endpoint, false);
      flags |= lacks(use, *used.endpoint);
      // Step 2 fails in the same way, or takes another provider.
      opened = use.ok();
      if (!opened) space->close_fabric();
    }
    if (status && making.last) status = making.last();
  }
  if (!opened) flags |= kNotOpened;
  if (!request.single_elements) flags |= kRows;
  if (request.rank == 0 && request.data_bytes == 0) flags |= kFirstIsEmpty;
  const Result<Agreement::Combined> combined =
      agreement.agree(status, flags, {request.data_bytes, ~request.data_bytes, Agreement::pair(request.unit)});
  if (!combined) return combined.error();
  std::uint64_t all_flags = combined.value().flags;
  const Agreement::Words& words = combined.value().words;
  Space::Agreed agreed;
  agreed.same_bytes = (words[0] & words[1]) == 0;
  agreed.same_units = Agreement::is_equal(words[2]);
  agreed.some_cma = (all_flags & kUsesCma) != 0;
  agreed.some_unmapped = (all_flags & kUnmapped) != 0;
  agreed.single_elements = (all_flags & kRows) == 0;
  MadeSpace result{std::move(space), all_flags & SpaceMaking::kMostFlags, (all_flags & kNeedsFabric) != 0};
  if (making.differ && (!agreed.same_bytes || !agreed.same_units)) {
    if (const auto kept = making.differ(result.flags, agreed.same_bytes, agreed.same_units)) {
      if (const Result<Agreement::Combined> all = agreement.agree(*kept); !all) return all.error();
    }
  }
  const Result<int> lowest = find_lowest_with_data(request, agreed.same_bytes, all_flags, agreement);
  if (!lowest) return lowest.error();
  agreed.lowest_with_data = lowest.value();

  const bool all_opened = (all_flags & (kNotOpened | kUsesCma)) == 0 && one_provider(all_flags) != 0;
  if (result.needs_fabric) agreed.use = used_by_all(all_flags);
  if (result.needs_fabric && !all_opened) {
    const Result<EndpointUse> use = open_fabric(making, *result.space, all_flags, agreement, peers);
    if (!use) return use.error();
    agreed.use = use.value();
  }
  if (result.needs_fabric) agreed.addresses = peers.addresses();
  result.space->finish(std::move(agreed));
  return result;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/make_space.hpp"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "transport/fabric/fabric.hpp"

namespace farside {
namespace {

// What a rank says about itself, behind the caller's flags.
constexpr std::uint64_t kNeedsFabric = 1 << 16;
constexpr std::uint64_t kUsesCma = 1 << 17;
constexpr std::uint64_t kNoEndpoint = 1 << 18;     // the rank has no endpoint yet
constexpr std::uint64_t kUnknownPeers = 1 << 19;   // the rank does not know the addresses of all ranks
constexpr std::uint64_t kNoNicAtomics = 1 << 20;   // the rank's endpoint has no adapter atomics
constexpr std::uint64_t kNotOpened = 1 << 21;      // the rank has not opened the fabric for this space
constexpr std::uint64_t kFirstProvider = 1 << 24;  // the provider of the rank's endpoint; also the following bits
constexpr std::uint64_t kAllFlags = (std::uint64_t{1} << Agreement::kFlags) - 1;

Providers providers_in(std::uint64_t said) { return static_cast<Providers>((said & kAllFlags) / kFirstProvider); }

// Returns whether all ranks have an endpoint, and of the same provider.
bool has_one_provider(std::uint64_t said) {
  return (said & kNoEndpoint) == 0 && std::has_single_bit(providers_in(said));
}

// Returns the providers that every rank can use. `said`: the flags of all ranks. A rank that can use no provider
// reports that when it opens its endpoint.
Result<Providers> agree_on_providers(std::uint64_t said, Agreement& agreement) {
  if (has_one_provider(said)) return providers_in(said);
  const Providers own = Process::instance().usable_providers();
  const Result<Agreement::Said> unusable = agreement.agree({}, 0, {own == 0 ? 0 : std::uint64_t{~own}});
  if (!unusable) return unusable.error();
  return static_cast<Providers>(~unusable.value().words[0]);
}

Error in_words(const char* what, const Error& error) { return {error.kind, fmt::format("{}: {}", what, error.text)}; }

Result<bool> open_fabric(const SpaceMaking& making, Space& space, std::uint64_t said, Agreement& agreement) {
  const bool some_cma = (said & kUsesCma) != 0;
  if (Status allowed = making.allow_fabric(space.reach().needs_fabric ? space.reach().why : std::string()); !allowed)
    return allowed.error();
  if (making.endpoint != nullptr) return space.open_fabric(*making.endpoint, some_cma);
  const Result<Providers> among = agree_on_providers(said, agreement);
  if (!among) return among.error();
  return space.open_fabric(among.value(), some_cma);
}

}  // namespace

Result<MadeSpace> make_space(const SpaceMaking& making, Agreement& agreement, GroupPeers& peers) {
  Process& process = Process::instance();
  const Space::Request& request = making.request;
  const auto endpoint = [&]() -> Endpoint* {
    return making.endpoint != nullptr ? making.endpoint : process.open_fabric();
  };
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
  const Providers in_use = making.endpoint != nullptr ? 1 : process.provider_in_use();
  flags |= in_use == 0 ? kNoEndpoint : in_use * kFirstProvider;
  if (!peers.knows_addresses(request.rank, endpoint())) flags |= kUnknownPeers;
  // Step 2 precedes the agreement where this rank knows enough for it.
  const auto open = [&](const Result<bool>& opened) {
    if (!opened || !opened.value()) flags |= kNoNicAtomics;
    return opened.status();
  };
  bool opened = false;
  if (space != nullptr) {
    const Space::Reach reach = space->reach();
    flags |= (reach.needs_fabric ? kNeedsFabric : 0) | (reach.uses_cma ? kUsesCma : 0);
    if (reach.unshared) status = Error{ErrorKind::kNoRoute, reach.why};
    opened = reach.needs_fabric && endpoint() != nullptr && (flags & kUnknownPeers) == 0 &&
             request.private_data == nullptr && !request.dynamic;
    if (status && opened) status = making.allow_fabric(reach.why);
    if (status && opened) status = open(space->open_fabric(*endpoint(), false));
    if (status && making.last) status = making.last();
  }
  if (!opened) flags |= kNotOpened;
  const Result<Agreement::Said> heard =
      agreement.agree(status, flags, {request.data_bytes, ~request.data_bytes, Agreement::pair(request.tag)});
  if (!heard) return heard.error();
  std::uint64_t said = heard.value().flags;
  const Agreement::Words& words = heard.value().words;
  Space::Agreed agreed;
  agreed.same_bytes = (words[0] & words[1]) == 0;
  agreed.same_tags = Agreement::is_equal(words[2]);
  agreed.some_cma = (said & kUsesCma) != 0;
  MadeSpace result{std::move(space), said & SpaceMaking::kMostFlags, (said & kNeedsFabric) != 0};
  if (making.differ && (!agreed.same_bytes || !agreed.same_tags)) {
    if (const auto kept = making.differ(result.flags, agreed.same_bytes, agreed.same_tags)) {
      if (const Result<Agreement::Said> all = agreement.agree(*kept); !all) return all.error();
    }
  }

  const bool all_opened = (said & (kNotOpened | kUsesCma)) == 0 && has_one_provider(said);
  if (result.needs_fabric && !all_opened) {
    flags = 0;
    status = open(open_fabric(making, *result.space, said, agreement));
    if ((said & kUnknownPeers) != 0) {
      Status gathered = peers.gather_addresses(agreement.group(), endpoint(), process);
      if (status) status = std::move(gathered);
    }
    const Result<Agreement::Said> accessible = agreement.agree(status, flags);
    if (!accessible) return accessible.error();
    said = accessible.value().flags;
  }
  agreed.nic_atomics = result.needs_fabric && (said & kNoNicAtomics) == 0;
  if (result.needs_fabric) agreed.addresses = peers.addresses();
  result.space->finish(std::move(agreed));
  return result;
}

}  // namespace farside

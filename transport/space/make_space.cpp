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
constexpr std::uint64_t kNoEndpoint = 1 << 18;    // the rank has no endpoint yet
constexpr std::uint64_t kUnknownPeers = 1 << 19;  // the rank does not know the addresses of all ranks
constexpr std::uint64_t kNoNicAtomics = 1 << 20;  // the rank's endpoint has no adapter atomics
constexpr std::uint64_t kFirstProvider = 1 << 24;  // the provider of the rank's endpoint; also the following bits
constexpr std::uint64_t kAllFlags = (std::uint64_t{1} << Agreement::kFlags) - 1;

// Returns the providers that every rank can use. `said`: the flags of all ranks. A rank that can use no provider
// reports that when it opens its endpoint.
Result<Providers> agree_on_providers(std::uint64_t said, Agreement& agreement) {
  const auto in_use = static_cast<Providers>((said & kAllFlags) / kFirstProvider);
  if ((said & kNoEndpoint) == 0 && std::has_single_bit(in_use)) return in_use;
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
  const auto endpoint = [&]() -> const Endpoint* {
    return making.endpoint != nullptr ? making.endpoint : process.open_fabric();
  };
  Result<std::unique_ptr<Space>> made = Space::make(request, peers.node());
  Status status = made ? Status() : Status(in_words("memory of the window", made.error()));
  std::uint64_t flags = making.flags;
  const Providers in_use = process.provider_in_use();
  flags |= in_use == 0 ? kNoEndpoint : in_use * kFirstProvider;
  if (!peers.knows_addresses(request.rank, endpoint())) flags |= kUnknownPeers;
  if (made) {
    const Space::Reach reach = made.value()->reach();
    flags |= (reach.needs_fabric ? kNeedsFabric : 0) | (reach.uses_cma ? kUsesCma : 0);
    if (reach.unshared) status = Error{ErrorKind::kNoRoute, reach.why};
  }
  const Result<Agreement::Said> heard =
      agreement.agree(status, flags, {request.data_bytes, ~request.data_bytes, Agreement::pair(request.tag)});
  if (!heard) return heard.error();
  const std::uint64_t said = heard.value().flags;
  const Agreement::Words& words = heard.value().words;
  Space::Agreed agreed;
  agreed.same_bytes = (words[0] & words[1]) == 0;
  agreed.same_tags = Agreement::is_equal(words[2]);
  agreed.some_cma = (said & kUsesCma) != 0;
  MadeSpace result{std::move(made.value()), said & SpaceMaking::kMostFlags, (said & kNeedsFabric) != 0};
  if (making.differ && (!agreed.same_bytes || !agreed.same_tags)) {
    if (const auto kept = making.differ(result.flags, agreed.same_bytes, agreed.same_tags)) {
      if (const Result<Agreement::Said> all = agreement.agree(*kept); !all) return all.error();
    }
  }

  flags = 0;
  status = {};
  if (result.needs_fabric) {
    const Result<bool> opened = open_fabric(making, *result.space, said, agreement);
    status = opened.status();
    if (!opened || !opened.value()) flags |= kNoNicAtomics;
    if ((said & kUnknownPeers) != 0) {
      Status gathered = peers.gather_addresses(agreement.group(), endpoint(), process);
      if (status) status = std::move(gathered);
    }
  }
  if (status && making.last) status = making.last();
  const Result<Agreement::Said> accessible = agreement.agree(status, flags);
  if (!accessible) return accessible.error();
  agreed.nic_atomics = (accessible.value().flags & kNoNicAtomics) == 0;
  if (result.needs_fabric) agreed.addresses = peers.addresses();
  result.space->finish(std::move(agreed));
  return result;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/second_rail.hpp"

#include <cstring>
#include <span>

namespace farside {
namespace {

// The id at the handler of the first endpoint. Any peer that has connected may know the address.
constexpr std::uint64_t kAddressId = 0x7365'636f'6e64'2072;
constexpr std::uint32_t kSender = 0;

bool publish(Endpoint& first, std::uint64_t id, const FabricAddress& second) {
  MessageHandler::ServedSpace served;
  served.ranks = kSender + 1;
  static_assert(sizeof second <= sizeof served.description);
  std::memcpy(served.description.data(), &second, sizeof second);
  served.description_bytes = sizeof second;
  return first.publish(id, served);
}

}  // namespace

PublishedAddress::PublishedAddress(Endpoint& first, std::uint64_t id, const FabricAddress& second)
    : first_(first), id_(id), published_(publish(first, id, second)) {}

PublishedAddress::~PublishedAddress() {
  if (published_) first_.withdraw(id_);
}

Result<FabricAddress> PublishedAddress::ask(Endpoint& first, Peer peer, std::uint64_t id, Progress& waiting,
                                            WakeEvent& wake_event) {
  FabricAddress address;
  Pending pending;
  Status asked =
      first.ask_for_description(pending, {peer, id, kSender}, std::as_writable_bytes(std::span(&address, 1)));
  if (asked) {
    for (Waiter waiter(waiting, wake_event); !pending.done();) waiter.pause();
    asked = pending.take_error();
  }
  if (!asked) return asked.error();
  return address;
}

SecondRail::SecondRail(Endpoint& first, Endpoint& second, std::uint32_t network, bool reads_back)
    : first_(first),
      second_(second),
      published_(first, kAddressId, second.address()),
      network_(network),
      reads_back_(reads_back) {}

Result<Peer> SecondRail::find(Peer peer, Progress& waiting, WakeEvent& wake_event) {
  {
    const std::scoped_lock held(mutex_);
    if (const auto known = peers_.find(peer); known != peers_.end()) return known->second;
  }
  const Result<FabricAddress> address = PublishedAddress::ask(first_, peer, kAddressId, waiting, wake_event);
  if (!address) return address.error();
  const Peer there = second_.insert(address.value());
  const std::scoped_lock held(mutex_);
  peers_.try_emplace(peer, there);
  return there;
}

}  // namespace farside

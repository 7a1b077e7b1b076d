// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/second_rail.hpp"

#include <cstring>
#include <span>

namespace farside {
namespace {

// The id at the handler of the first endpoint. Any peer that has connected may know the address.
constexpr std::uint64_t kAddressId = 0x7365'636f'6e64'2072;
constexpr std::uint32_t kSender = 0;

}  // namespace

void SecondRail::publish(Endpoint& first, const FabricAddress& second) {
  MessageHandler::ServedSpace served;
  served.ranks = kSender + 1;
  static_assert(sizeof second <= sizeof served.description);
  std::memcpy(served.description.data(), &second, sizeof second);
  served.description_bytes = sizeof second;
  first.publish(kAddressId, served);
}

Result<FabricAddress> SecondRail::ask(Peer peer, Progress& waiting, WakeEvent& wake_event) const {
  FabricAddress address;
  Pending pending;
  Status asked = first_.ask_for_description(pending, {peer, kAddressId, kSender},
                                            std::as_writable_bytes(std::span(&address, 1)));
  if (asked) {
    for (Waiter waiter(waiting, wake_event); !pending.done();) waiter.pause();
    asked = pending.take_error();
  }
  if (!asked) return asked.error();
  if (address == FabricAddress()) return Error{ErrorKind::kRange, "the peer has no second device"};
  return address;
}

Result<Peer> SecondRail::find(Peer peer, Progress& waiting, WakeEvent& wake_event) {
  {
    const std::scoped_lock held(mutex_);
    if (const auto known = peers_.find(peer); known != peers_.end()) return known->second;
  }
  const Result<FabricAddress> address = ask(peer, waiting, wake_event);
  if (!address) return address.error();
  const Peer there = second_.insert(address.value());
  const std::scoped_lock held(mutex_);
  peers_.try_emplace(peer, there);
  return there;
}

}  // namespace farside

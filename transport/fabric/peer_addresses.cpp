// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/peer_addresses.hpp"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"

namespace farside {

namespace {

// The table begins behind its nonce.
constexpr std::size_t kHeader = 64;

}  // namespace

PeerAddresses PeerAddresses::share(NodeGroup& node, std::span<const FabricAddress> all, Progress& progress) {
  auto table = std::make_shared<Table>();
  const std::size_t bytes = kHeader + all.size_bytes();
  Segment made;
  SegmentPlace place;
  if (node.members() > 1 && node.leads()) {
    if (Result<Segment> segment = make_segment(bytes)) {
      made = std::move(segment.value());
      place = {getpid(), made.fd.get(), random_bits()};
      std::memcpy(made.mapping.base(), &place.nonce, sizeof place.nonce);
      std::memcpy(made.mapping.base() + kHeader, all.data(), all.size_bytes());
      table->mapping = std::move(made.mapping);
    } else {
      log(LogLevel::kInfo, "each process keeps the addresses of its peers: {}", segment.error().text);
    }
  }
  if (node.members() > 1) place = node.exchange(place, progress).front();
  if (place.fd >= 0 && !node.leads()) {
    if (Result<Mapping> mapped = map_peer_segment(place, bytes)) table->mapping = std::move(mapped.value());
  }
  // The leader's descriptor is closed when all have mapped the table.
  if (place.fd >= 0) (void)node.exchange('\0', progress);
  if (const std::byte* base = table->mapping.base()) {
    (void)mprotect(table->mapping.base(), bytes, PROT_READ);
    table->addresses = {reinterpret_cast<const FabricAddress*>(base + kHeader), all.size()};
  } else {
    table->own.assign(all.begin(), all.end());
    table->addresses = table->own;
  }
  PeerAddresses shared;
  shared.table_ = std::move(table);
  return shared;
}

PeerAddresses PeerAddresses::of_group(std::vector<int> ranks) const {
  PeerAddresses others;
  others.table_ = table_;
  others.first_ = ranks.front();
  others.stride_ = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank] == others.first_ + static_cast<int>(rank) * others.stride_) continue;
    others.listed_ = std::make_shared<const std::vector<int>>(std::move(ranks));
    break;
  }
  return others;
}

}  // namespace farside

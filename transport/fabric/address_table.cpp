// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/address_table.hpp"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <utility>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"

namespace farside {

namespace {

// The table begins behind its nonce.
constexpr std::size_t kHeader = 64;

struct Announcement {
  std::int32_t fd = -1;
  std::uint64_t nonce = 0;
};

}  // namespace

std::shared_ptr<const AddressTable> AddressTable::share(NodeGroup& node, std::span<const FabricAddress> all,
                                                        Progress& progress) {
  auto table = std::make_shared<AddressTable>();
  const std::size_t bytes = kHeader + all.size_bytes();
  Segment made;
  Announcement announcement;
  if (node.members() > 1 && node.leads()) {
    if (Result<Segment> segment = make_segment(bytes)) {
      made = std::move(segment.value());
      announcement = {made.fd.get(), random_bits()};
      std::memcpy(made.mapping.base(), &announcement.nonce, sizeof announcement.nonce);
      std::memcpy(made.mapping.base() + kHeader, all.data(), all.size_bytes());
      table->mapping_ = std::move(made.mapping);
    } else {
      log(LogLevel::kInfo, "each process keeps the addresses of its peers: {}", segment.error().text);
    }
  }
  if (node.members() > 1) announcement = node.exchange(announcement, progress).front();
  if (announcement.fd >= 0 && !node.leads()) {
    Result<Mapping> mapped = map_peer_segment(node.member(0).pid, announcement.fd, bytes);
    if (mapped && std::memcmp(mapped.value().base(), &announcement.nonce, sizeof announcement.nonce) == 0)
      table->mapping_ = std::move(mapped.value());
  }
  // The leader's descriptor is closed when all have mapped the table.
  if (announcement.fd >= 0) (void)node.exchange('\0', progress);
  if (const std::byte* base = table->mapping_.base()) {
    (void)mprotect(table->mapping_.base(), bytes, PROT_READ);
    table->addresses_ = {reinterpret_cast<const FabricAddress*>(base + kHeader), all.size()};
  } else {
    table->own_.assign(all.begin(), all.end());
    table->addresses_ = table->own_;
  }
  return table;
}

PeerAddresses::PeerAddresses(std::shared_ptr<const AddressTable> table, std::vector<int> indexes)
    : table_(std::move(table)) {
  first_ = indexes.front();
  stride_ = indexes.size() > 1 ? indexes[1] - first_ : 1;
  for (std::size_t rank = 0; rank < indexes.size(); ++rank) {
    if (indexes[rank] == first_ + static_cast<int>(rank) * stride_) continue;
    listed_ = std::make_shared<const std::vector<int>>(std::move(indexes));
    return;
  }
}

}  // namespace farside

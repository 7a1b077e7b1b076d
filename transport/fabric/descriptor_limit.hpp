// SPDX-License-Identifier: BSD-3-Clause
// The descriptors that this process may have (RLIMIT_NOFILE, and its share of the node's open files), of which each
// connection over TCP takes one. Connections leave a reserve to the application. The soft limit is raised, as far as
// the hard limit permits, only when connections need it: descriptors above 1023 do not fit into the fd_set of
// select(2).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/fabric/node_share.hpp"

namespace farside {

// Returns how many connections fit below a limit of descriptors, `open` of which are in use by others.
constexpr std::size_t connections_within(std::uint64_t limit, std::size_t open) {
  constexpr std::uint64_t kReserve = 256;
  const std::uint64_t others = open + (limit / 4 < kReserve ? limit / 4 : kReserve);
  return others < limit ? static_cast<std::size_t>(limit - others) : 0;
}

// Returns how many connections fit into this process's share of the node's open files.
constexpr std::size_t connections_of_node(std::uint64_t files, std::size_t processes, std::size_t open) {
  const std::uint64_t share = share_of_node(files, processes);
  return open < share ? static_cast<std::size_t>(share - open) : 0;
}

class DescriptorLimit {
 public:
  // Reads the limits, and counts the descriptors that are open now.
  DescriptorLimit();
  // Returns how many connections fit when the soft limit is raised to the hard limit, and so many processes, with this
  // one, share the open files of the node.
  std::size_t most_connections(std::size_t processes) const {
    return std::min(connections_within(hard_, open_), connections_of_node(of_node_, processes, open_));
  }
  // Raises the soft limit if so many connections need it.
  void allow(std::size_t connections) {
    if (connections > allowed_) [[unlikely]]
      raise(connections);
  }
  // Raises the soft limit, at least to twice its value. Returns false if it cannot be raised any more.
  bool raise(std::size_t connections);

 private:
  std::size_t open_ = 0;
  std::uint64_t hard_ = 0;
  std::uint64_t of_node_ = 0;  // open files that the node may have
  std::size_t allowed_ = 0;  // connections that fit below the soft limit
};

}  // namespace farside

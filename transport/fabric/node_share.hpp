// SPDX-License-Identifier: BSD-3-Clause
// A process's share of the node's resources for connections. Over TCP each connection takes an open file of the node
// (/proc/sys/fs/file-max), over an adapter a queue pair.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace farside {

// Returns the share of one of `processes`. A quarter stays for the MPI runtime and other programs.
constexpr std::uint64_t share_of_node(std::uint64_t all, std::size_t processes) {
  return (all - all / 4) / std::max<std::uint64_t>(processes, 1);
}

// Returns how many connections a process may have over an adapter with so many queue pairs, at least 1; 0: any number,
// since 0 queue pairs say that their number is not known (fi_domain(3), ep_cnt).
constexpr std::size_t connections_of_adapter(std::size_t queue_pairs, std::size_t processes) {
  return queue_pairs == 0 ? 0 : std::max<std::size_t>(share_of_node(queue_pairs, processes), 1);
}

}  // namespace farside

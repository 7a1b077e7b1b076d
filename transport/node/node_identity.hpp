// SPDX-License-Identifier: BSD-3-Clause
// Which processes can share memory: those of one boot of one kernel, with the same host name, process ids and user. (A
// launcher that wants two nodes on one machine gives them two host names.) Equal identities are a guess: a process is
// an on-node peer only if its segment can be mapped and has the announced nonce.
//
// Thread safety: any. Cost: some 20 us.
#pragma once

#include <cstdint>

namespace farside {

// Returns a hash of these properties of this process; never 0.
std::uint64_t node_identity();

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The making of a space by all ranks of a group: all ranks get a space, or all get an error of the same kind.
//
//   gather   SpaceMaking; Space::make (one exchange between the members of a node); and Space::open_fabric where the
//            group uses an endpoint already, and this rank needs it and brings no private memory
//   agree    Has no rank failed? Does some rank need the fabric, and have all opened it over the same provider? Are
//            sizes and units equal? If the fabric is needed and not open: ProviderAgreement
//   commit   Space::finish
//
// Thread safety: one thread per group. Errors: those of the steps, in words for the user. Cost: one exchange inside the
// node, and one reduction of 32 bytes, or two with ProviderAgreement; at the first space of a group that needs the
// fabric, unless it is part of a group that uses an endpoint, a reduction of 32 bytes and a gather more.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/base/result.hpp"
#include "transport/space/agreement.hpp"
#include "transport/space/group_peers.hpp"
#include "transport/space/space.hpp"

namespace farside {

// What a rank brings.
struct SpaceMaking {
  static constexpr int kFlags = 16;
  Space::Request request;
  const char* call = "";           // for messages
  const Error* own = nullptr;      // why this rank makes no space; all ranks then get an error of this kind
  const Error* besides = nullptr;  // the same, but not for lack of memory: a failure of Space::make comes first
  bool same_bytes = false;         // the info promises that all ranks have the same Request::data_bytes
  bool same_units = false;         // or the same Request::unit
  std::uint64_t flags = 0;         // of the caller, at most kFlags bits; all ranks get the "or" of them
  Endpoint* endpoint = nullptr;    // another one than the process's, for tests and simulations
};

struct MadeSpace {
  std::unique_ptr<Space> space;
  std::uint64_t flags = 0;    // of all ranks
  bool needs_fabric = false;  // some rank needs it
};

Result<MadeSpace> make_space(const SpaceMaking& making, Agreement& agreement, GroupPeers& peers);

}  // namespace farside

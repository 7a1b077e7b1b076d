// SPDX-License-Identifier: BSD-3-Clause
// The making of a space by all ranks of a group, in the steps of space.hpp with an agreement after each: all ranks get
// a space, or all get an error of the same kind.
//
//   1. Space::make        one exchange between the members of a node
//      open_fabric        where the group uses an endpoint already, and no rank brings private memory
//      agreement          some rank needs the fabric? all have opened it? sizes and units equal? one provider?
//                         `last` done?
//   2. ProviderAgreement  unless all ranks have opened it: the provider, the endpoints, the addresses
//   3. Space::finish
//
// Thread safety: one thread per group. Errors: those of the steps, in words for the user. Cost: one exchange inside the
// node, and one reduction of 32 bytes, or two where step 2 is needed; at the first space of a group that needs the
// fabric, unless it is part of a group that uses an endpoint, a reduction of 32 bytes and a gather more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "transport/base/result.hpp"
#include "transport/space/agreement.hpp"
#include "transport/space/group_peers.hpp"
#include "transport/space/space.hpp"

namespace farside {

// The caller's part.
struct SpaceMaking {
  static constexpr std::uint64_t kMostFlags = 0xffff;
  Space::Request request;
  const Error* own = nullptr;  // why this rank makes no space; all ranks then get an error of this kind
  std::uint64_t flags = 0;     // of the caller; all ranks get the "or" of them. At most kMostFlags
  // Called if the bytes or the units are not the same on all ranks. `flags`: those of all ranks. Returns nothing, on
  // all ranks, if bytes and units may differ; else this rank's status.
  std::function<std::optional<Status>(std::uint64_t flags, bool same_bytes, bool same_units)> differ;
  // Called before the first agreement, unless this rank has failed.
  std::function<Status()> last;
  // Called when the rank knows that the fabric is needed, once or twice. `why` is empty if only another rank needs it.
  std::function<Status(const std::string& why)> allow_fabric;
  // Another endpoint than the process's, for tests and simulations.
  Endpoint* endpoint = nullptr;
};

struct MadeSpace {
  std::unique_ptr<Space> space;
  std::uint64_t flags = 0;    // of all ranks
  bool needs_fabric = false;  // some rank needs it
};

Result<MadeSpace> make_space(const SpaceMaking& making, Agreement& agreement, GroupPeers& peers);

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The making of a space by all ranks of a group: all ranks get a space, or all get an error of the same kind.
//
//   gather   SpaceMaking; SpaceMaker::make_memory (one exchange between the members of a node); and open_fabric where
//            the group uses an endpoint already, and this rank needs it and brings no private memory
//   agree    Has no rank failed? Does some rank need the fabric, and have all opened it over the same provider? Are
//            sizes and units equal? If the fabric is needed and not open: ProviderAgreement
//   commit   SpaceMaker::finish
//
// Thread safety: one thread per group. Errors: those of the steps, in words for the user. Cost: one exchange inside the
// node, and one reduction of 32 bytes, or two with ProviderAgreement; at the first space of a group that needs the
// fabric, unless it is part of a group that uses an endpoint, a reduction of 32 bytes and a gather more; and a
// reduction of one int if rank 0 has no data, but another rank does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/base/result.hpp"
#include "transport/fabric/endpoint.hpp"
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
  const Error* besides = nullptr;  // the same, but not for lack of memory: a failure of make_memory() comes first
  bool same_bytes = false;         // the info promises that all ranks have the same Request::data_bytes
  bool same_units = false;         // or the same Request::unit
  std::uint64_t flags = 0;         // of the caller, at most kFlags bits; all ranks get the "or" of them
  Endpoint* endpoint = nullptr;    // another one than the process's, for tests and simulations
};

struct MadeSpace {
  std::unique_ptr<Space> space;
  std::uint64_t flags = 0;  // of all ranks
};

Result<MadeSpace> make_space(const SpaceMaking& making, Agreement& agreement, GroupPeers& peers);

// This rank's part in it.
class SpaceMaker {
 public:
  explicit SpaceMaker(const Space::Request& request);

  // Collective over the members of the node, even after an error of one member. The others then get an error of the
  // same kind without a text, since the failed member reports the reason. `own`: why this rank makes no space, or null.
  // Errors: kNoMemory, kNoRoute.
  Status make_memory(NodeGroup& node, const Error* own = nullptr);
  // Makes the memory accessible over the endpoint. If some rank needs the fabric, all ranks call this. `some_cma`: some
  // rank uses cma. Errors: those of FabricRoute::register_memory().
  Status open_fabric(Endpoint& endpoint, bool some_cma);
  // Reverts open_fabric().
  void close_fabric();
  // What the ranks have agreed on. The members that follow some_unmapped concern spaces that need the fabric.
  struct Agreed {
    bool some_cma = false;         // some rank uses cma
    bool some_unmapped = false;    // some rank reaches an on-node peer by the fabric
    PeerAddresses addresses;       // of all ranks
    bool nic_atomics = false;      // the endpoints of all ranks have adapter atomics
    bool single_elements = false;  // all ranks have set Request::single_elements
    bool same_bytes = false;       // all ranks have the same Request::data_bytes
    bool same_units = false;
    int lowest_with_data = -1;  // the lowest rank whose Request::data_bytes is above 0
  };
  // Precondition: all ranks have made their memory and their regions accessible.
  std::unique_ptr<Space> finish(Agreed agreed);

  // What make_memory() has found on this rank; the ranks combine it by "or".
  bool needs_fabric = false;   // some peer has no route inside the node
  bool some_unmapped = false;  // as in Agreed
  bool uses_cma = false;       // some peer has the route cma
  bool unshared = false;       // the space is shared, and some peer's data could not be mapped
  std::string why;             // the reason of needs_fabric or unshared, for a message

 private:
  struct Offer;
  Offer offer(NodeGroup& node, Status& failed);
  Status check(const NodeGroup& node, std::span<const Offer> offers) const;
  NodeSegment::Layout layout(std::span<const Offer> offers) const;
  void take_memory(NodeSegment segment, int index, bool handled);
  void find_routes(NodeGroup& node, std::span<const Offer> offers);
  std::string find_route(NodeTarget& target, const NodeMember& member, const Offer& offer, std::byte*& memory);
  MessageHandler::ServedSpace served_space(bool always_locked);

  const Space::Request request_;
  const bool private_;                  // the data are memory of the application
  const bool apart_;                    // FARSIDE_ROUTES does not allow mapped: this node has one target, this rank
  const std::uint32_t stale_word_;      // of Regions
  const std::uint32_t control_bytes_;   // with that word
  bool all_support_membarrier_ = true;  // all ranks of the node take part in global_membarrier()
  std::unique_ptr<Space> space_;
};

}  // namespace farside

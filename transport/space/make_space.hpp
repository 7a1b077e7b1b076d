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

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/base/result.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/space/group.hpp"
#include "transport/space/space.hpp"

namespace farside {

// The contribution of a rank.
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
  std::uint64_t flags = 0;                      // of all ranks
  bool same_bytes = false, same_units = false;  // SpaceMaking's promises hold, whether given or not
};

// This rank's part in it.
class SpaceMaker {
 public:
  explicit SpaceMaker(const SpaceMaking& making);
  // Collective over the group: all that follows.
  Result<MadeSpace> make(Group& group);

  // Collective over the members of the node, even after an error of one member. The others then get an error of the
  // same kind without a text, since the failed member reports the reason. Errors: SpaceMaking::own, kNoMemory,
  // kNoRoute.
  Status make_memory(NodeGroup& node);
  // The agreement of the ranks besides their vote, for spaces that need the fabric.
  struct Agreed {
    PeerAddresses addresses;   // of all ranks
    bool nic_atomics = false;  // the endpoints of all ranks have adapter atomics
    bool same_bytes = false;   // all ranks have the same Request::data_bytes
    bool same_units = false;
    int lowest_with_data = -1;  // the lowest rank whose Request::data_bytes is above 0
  };
  // Precondition: all ranks have made their memory and their regions accessible.
  std::unique_ptr<Space> finish(Agreed agreed);

  // The facts of this rank, in the flags of the agreement. The vote of all ranks, which follows, has each bit
  // that one of them has.
  struct Vote {
    std::uint64_t callers : SpaceMaking::kFlags = 0;
    bool needs_fabric : 1 = false;    // some peer has no route inside the node
    bool uses_cma : 1 = false;        // some peer has the route cma
    bool no_endpoint : 1 = false;     // the rank knows no endpoint that the group uses
    bool no_nic_atomics : 1 = false;  // the rank's endpoint has no adapter atomics
    bool not_opened : 1 = false;      // the rank has not opened the fabric for this space
    bool rows : 1 = false;            // the rank does not say that accumulates are single elements
    bool unmapped : 1 = false;        // the rank reaches an on-node peer by the fabric
    bool first_is_empty : 1 = false;  // rank 0 has no data
    bool same_bytes : 1 = false;      // the rank has promised this of all ranks
    bool same_units : 1 = false;
    std::uint64_t providers : Group::kFlags - SpaceMaking::kFlags - 10 = 0;  // that of the endpoint
    std::uint64_t failures : 64 - Group::kFlags = 0;                         // Group's own

    // The provider of the endpoint that the group uses, according to all ranks; 0 if there is none.
    Providers one_provider() const {
      return !no_endpoint && std::has_single_bit(std::uint64_t{providers}) ? static_cast<Providers>(providers) : 0;
    }
  };
  static_assert(sizeof(Vote) == sizeof(std::uint64_t));
  Vote vote;
  std::string why;  // vote.needs_fabric, or why the data of a shared space are not, for a message

 private:
  struct Offer;
  // The steps of make().
  void gather(Group& group);
  Result<Agreed> agree(Group& group);
  Status allow_fabric() const;
  Status open_fabric(Endpoint& endpoint, bool some_cma);
  Result<bool> agree_on_fabric(Group& group);
  Status check_promises(Group& group, bool units_broken, bool bytes_broken) const;
  Result<int> find_lowest_with_data(Group& group, bool same_bytes) const;
  // Those of make_memory().
  Offer offer(NodeGroup& node, Status& failed);
  Status check(const NodeGroup& node, std::span<const Offer> offers) const;
  NodeSegment::Layout layout(std::span<const Offer> offers) const;
  void take_memory(NodeSegment segment, int index, bool handled);
  void find_routes(NodeGroup& node, std::span<const Offer> offers);
  std::string find_route(NodeTarget& target, const NodeMember& member, const Offer& offer, std::byte*& memory);
  MessageHandler::ServedSpace served_space(bool always_locked);

  const SpaceMaking making_;
  const Space::Request request_ = making_.request;
  const bool private_;                  // the data are memory of the application
  const bool apart_;                    // FARSIDE_ROUTES does not allow mapped: this node has one target, this rank
  const std::uint32_t stale_word_;      // of Regions
  const std::uint32_t control_bytes_;   // with that word
  bool all_support_membarrier_ = true;  // all ranks of the node take part in global_membarrier()
  bool unshared_ = false;               // the space is shared, and some peer's data could not be mapped
  Status status_;                       // why this rank makes no space
  std::unique_ptr<Space> space_;
};

inline Result<MadeSpace> make_space(const SpaceMaking& making, Group& group) { return SpaceMaker(making).make(group); }

}  // namespace farside

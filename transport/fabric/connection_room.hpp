// SPDX-License-Identifier: BSD-3-Clause
// ConnectionRoom: what there is for connections (over TCP descriptors, else queue pairs of the adapter), and which
// errors of connecting say that there is no more of it, or may pass by themselves.
//
// Not thread-safe: Fabric's mutex guards it. Errors: none. Cost: a comparison per connection. Memory: nothing per peer.
#pragma once

#include <cstddef>

#include "transport/fabric/descriptor_limit.hpp"
#include "transport/fabric/domain.hpp"

namespace farside {

// Returns whether an error of connecting may pass by itself: a cable was cut, the peer is too busy to accept, an
// address is not resolved yet, or there will be room again. Such an attempt is repeated until the peer is abandoned.
bool connecting_may_pass(int error);

class ConnectionRoom {
 public:
  explicit ConnectionRoom(const FabricDomain& domain) : domain_(domain) {}

  // Returns how many connections the process may have if so many processes of its node, with this one, share what
  // there is. (All connections of a process use one completion queue.) 0: any number, because the provider does not
  // say how many queue pairs there are.
  std::size_t most_connections(std::size_t processes) const;
  // What that number depends on, in words.
  const char* what_limits() const;
  // Makes room for so many connections, as far as that is possible.
  void allow(std::size_t connections) {
    if (!domain_.by_adapter()) descriptors_.allow(connections);
  }
  // Notes an error of connecting beyond `connections`. Where the process has no descriptor left, its soft limit may
  // have been lowered, or others need many.
  void note_error(int error, std::size_t connections);
  // Notes a shortage if the process has no descriptor left to duplicate this one.
  void look_for_shortage(int descriptor, std::size_t connections);
  // Returns whether the process, or its node, had no descriptor or no memory for a connection since the last
  // clear_shortage().
  bool shortage() const { return shortage_; }
  void clear_shortage() { shortage_ = false; }

 private:
  const FabricDomain& domain_;
  DescriptorLimit descriptors_;
  bool shortage_ = false;
};

}  // namespace farside

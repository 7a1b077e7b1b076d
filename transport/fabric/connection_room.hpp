// SPDX-License-Identifier: BSD-3-Clause
// ConnectionRoom: the resources for connections (descriptors over TCP, else queue pairs of the adapter), and the
// classes of connection errors: shortage of a resource, transient, lasting.
//
// Not thread-safe: Fabric's mutex guards it. Errors: none. Cost: a comparison per connection. Memory: nothing per peer.
#pragma once

#include <cstddef>

#include "transport/fabric/descriptor_limit.hpp"
#include "transport/fabric/domain.hpp"

namespace farside {

// Returns whether a connection error is transient: a cable was cut, the peer is too busy to accept, an address is not
// resolved yet, or a resource is short. Such an attempt is repeated until the peer is abandoned.
bool is_transient_connect_error(int error);

class ConnectionRoom {
 public:
  explicit ConnectionRoom(const FabricDomain& domain) : domain_(domain) {}

  // Returns how many connections the process may have if this number of processes of its node, this one included, share
  // the resource. (All connections of a process use one completion queue.) 0: any number, because the provider does not
  // say how many queue pairs there are.
  std::size_t most_connections(std::size_t processes) const;
  // What that number depends on, in words.
  const char* what_limits() const;
  // Makes room for so many connections, as far as that is possible.
  void allow(std::size_t connections) {
    if (!domain_.by_adapter()) descriptors_.allow(connections);
  }
  // Notes an error of a request for one connection more than `connections`. If the process has no descriptor left, its
  // soft limit may have been lowered, or other parts of the program use many descriptors.
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

// SPDX-License-Identifier: BSD-3-Clause
// ConnectionEndpoints: the libfabric objects of connections: the queue of connection events, the queue of receives that
// all endpoints share, the listener, and the endpoints (fi_endpoint(3), fi_cm(3), fi_eq(3)).
//
// Thread safety: any thread may call open_accepting() and open_towards(); they read only what open() has made. The
// other members are called under Fabric's mutex. Errors: kNoRoute when it is opened, else negative libfabric codes.
// Cost: over TCP 40 us per endpoint, without waiting; endpoint_opener.hpp says what an adapter may take. Memory:
// nothing per peer.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <sys/types.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/domain.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/message_ring.hpp"
#include "transport/fabric/tcp_path.hpp"

namespace farside {

class ConnectionEndpoints {
 public:
  // For tests: called before an endpoint is opened, in place of a resolution of the address. A negative libfabric code
  // is the result.
  using Resolve = std::function<int(const SocketAddress&)>;
  // `domain` must outlive this object.
  ConnectionEndpoints(const FabricDomain& domain, Resolve resolve) : domain_(domain), resolve_(std::move(resolve)) {}

  // Begins to listen. `receives`: how many the shared queue shall hold; 0: libfabric's default. Errors: kNoRoute.
  Status open(std::size_t receives);
  // The address of the listener.
  const SocketAddress& address() const { return address_; }
  fid_eq* events() const { return events_.get(); }
  int events_fd() const { return events_fd_; }
  fid_ep* receiver() const { return receives_.get(); }
  // How many receives it holds: what was asked for, or libfabric's default if an adapter has no room for that.
  std::size_t most_receives() const { return most_receives_; }

  // Open an endpoint: for a peer's request (`info` came with it), or for a request of this process to the address.
  // `ring`: by which messages are sent on it (message_ring.hpp), or null. Return 0 or a negative libfabric code.
  ssize_t open_accepting(fi_info* info, MessageRing* ring, FabricHandle<fid_ep>& out) const;
  ssize_t open_towards(const SocketAddress& address, MessageRing* ring, FabricHandle<fid_ep>& out) const;
  // Refuses a peer's request.
  void reject(const fi_info& info) const { fi_reject(listener_.get(), info.handle, nullptr, 0); }
  void stop_listening() { listener_.reset(); }

 private:
  const FabricDomain& domain_;
  const Resolve resolve_;
  FabricHandle<fid_eq> events_;
  int events_fd_ = -1;
  FabricHandle<fid_ep> receives_;
  std::size_t most_receives_ = 0;
  FabricHandle<fid_pep> listener_;
  SocketAddress address_;
};

// The two ends of a connection over TCP or an adapter; none if it has no such addresses.
std::optional<TcpEnds> ends_of(fid_ep* endpoint);

// Shuts the connection down. When this returns, the provider touches no buffer of an operation on it any more; all of
// them complete with errors. `queue`: their completion queue; null over an adapter.
void shut_down(fid_ep* endpoint, fid_cq* queue);

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// OpenEndpoint: an endpoint of this process: an Endpoint with its progress and its device. Process owns the open ones.
// open_endpoint() (provider.hpp) has one line per kind of libfabric's endpoints (FI_EP_MSG: Fabric).
//
// Thread safety: any thread may call all members. Errors and cost: those of Endpoint.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transport/base/address.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/endpoint.hpp"

namespace farside {

class EndpointProgress {
 public:
  // For waiting application threads (Progress). Returns whether anything completed or arrived. Does nothing if another
  // thread has just polled (SharedPolls).
  virtual bool poll() = 0;
  // For application threads that test a condition once. Handles everything that has arrived, and does not rely on the
  // poll of another thread, which may have begun before the arrival.
  virtual void poll_now() = 0;
  // For threads that wait in the MPI runtime, called repeatedly from its progress engine: polls while the progress
  // thread leaves arrivals to them (AdaptivePolling), else costs two loads and a store.
  virtual bool poll_from_runtime() = 0;
  // Returns whether large transfers that this process has issued are expected to move now, at 1 GB/s. If the
  // thread that waits for them slept, each arrival of data would have to wake the progress thread.
  virtual bool transfers() const = 0;
  // Between these calls `wake_event` is signalled when something arrives.
  virtual void listen(WakeEvent& wake_event) = 0;
  virtual void stop_listening(WakeEvent& wake_event) = 0;
  // A peer on trial is abandoned after Timing::kTrial, if FARSIDE_PEER_TIMEOUT is not shorter. The time of other peers
  // does not change. Each call with `on` is followed by one without.
  virtual void set_on_trial(Peer peer, bool on) = 0;

 protected:
  ~EndpointProgress() = default;
};

class OpenEndpoint : public Endpoint {
 public:
  virtual EndpointProgress& progress() = 0;
  virtual const EndpointProgress& progress() const = 0;
  virtual const char* provider() const = 0;
  virtual const char* device() const = 0;
  // Sets the number of processes of this node, this one included, that use the fabric or may use it. They share the
  // node's resources for connections (connecting.hpp). Only the largest number of all calls counts; before the first
  // call it is 1.
  virtual void share_node(std::size_t processes) = 0;
};

}  // namespace farside

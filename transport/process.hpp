// SPDX-License-Identifier: BSD-3-Clause
// Process: the owner of everything that outlives a window: settings, statistics, the endpoints, the node handler, and
// the hook that progresses the MPI runtime while an application thread waits.
//
// A process has one endpoint per libfabric provider that some window uses; most processes have one. The endpoint
// of a window never changes.
//
// Thread safety: all members may be called from any thread; opening (fabric, node_handler) is serialised by a mutex.
// Cost: poll without an endpoint is three loads.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/state.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/device_memory.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/node/shareable_memory.hpp"

namespace farside {

struct Candidate;
class OpenEndpoint;
class NodeHandler;
class ProviderChoice;

class Process final : public Progress {
 public:
  static Process& instance() { return *this_process.process; }
  Process();

  // Reads the settings at the first call and keeps them, or their error.
  Result<const Settings*> settings();
  Statistics& statistics() { return statistics_; }

  // Memory of MPI_Alloc_mem, of which windows may be made.
  ShareableMemory& shareable_memory() { return shareable_memory_; }
  PeerPermission& peer_permission() { return peer_permission_; }
  DeviceMemory& device_memory() { return device_memory_; }
  DeviceStaging& device_staging() { return device_staging_; }

  // Checks that the provider of FARSIDE_PROVIDER, if it is set, exists. Opens no endpoint. Errors and cost:
  // ProviderChoice::find().
  Status find_named_provider();
  // The libfabric providers that this process offers to a group (fabric/provider_choice.hpp). The first call opens an
  // endpoint.
  struct ProviderOffer {
    Providers usable = 0;
    Providers wanted = 0;                 // the usable ones, and those whose adapters are there and cannot be used
    std::optional<Error> unknown_device;  // FARSIDE_DEVICE names nothing on this machine
  };
  ProviderOffer offer_providers();
  // For tests: with these candidates, whatever the machine has. Precondition: no call has asked for an endpoint.
  void use_candidates(std::vector<Candidate> candidates);
  // Why this process cannot use a provider.
  std::string why_not(Providers one);
  // Begins a trial of the best usable provider in `among`: returns its endpoint. The processes of a space agree on one
  // provider, and each passes that one only, since another thread may make it unusable at any time. Several threads may
  // try an endpoint. The caller ends the trial by one of the two calls that follow. If it does not use the endpoint,
  // it must have released all objects of the endpoint before. Errors: those of settings() and
  // ProviderChoice::try_best().
  Result<OpenEndpoint*> try_fabric(Providers among);
  // From now on, and until shut_down(), this process uses the endpoint.
  void use_fabric(OpenEndpoint& tried);
  // This process does not use the endpoint: ProviderChoice::leave().
  void leave_fabric(const OpenEndpoint& tried, TrialFault fault = TrialFault::kOfOthers, const std::string& why = {});
  // Does try_fabric() and use_fabric().
  Result<OpenEndpoint*> fabric(Providers among = kAnyProvider);
  // An endpoint in use, with the bit of its provider.
  struct EndpointInUse {
    Providers provider = 0;
    OpenEndpoint* fabric = nullptr;
  };
  static constexpr std::size_t kMostEndpoints = 2;  // the number of preferred_providers()
  // Returns the endpoints in use, those of better providers first, and null ones behind them.
  std::array<EndpointInUse, kMostEndpoints> endpoints_in_use() const;
  // The one of the best provider; null until one is in use.
  OpenEndpoint* open_fabric() const { return endpoints_in_use().front().fabric; }
  // Returns the handler for on-node peers, and opens it at the first call. An error is kept.
  Result<NodeHandler*> node_handler();
  // Closes the endpoints and ends all threads of farside. Precondition: all windows are freed. Waits for a
  // poll_from_runtime() in another thread; a later one finds nothing to do.
  void shut_down();

  // `hook` makes progress of the MPI runtime without blocking (RuntimeResources in pmpi/). Only waiting threads of the
  // application call it.
  void set_runtime_progress(void (*hook)()) { runtime_progress_.store(hook, std::memory_order_release); }

  void poll() override;
  // For calls that test a condition once and return. Handles everything that has arrived at the endpoints, while poll()
  // may leave arrivals to another thread that polls.
  void poll_now();
  // For the MPI runtime's progress engine, which calls it repeatedly while a thread of the application or of the
  // runtime waits there. Returns whether anything completed or arrived; false also if a thread is already in it.
  // Calls no MPI. Costs three loads while nothing is open.
  bool poll_from_runtime();
  void poll_runtime() override;
  bool transfers() const override;
  void listen(WakeEvent& wake_event) override;
  void stop_listening(WakeEvent& wake_event) override;
  // For waits that only an endpoint ends.
  WakeEvent& own_wake_event() { return own_wake_event_; }

 private:
  ~Process();

  ProviderChoice& choice(const Settings& settings);
  // Calls `call` with each endpoint in use.
  template <class Call>
  void for_each_endpoint(Call&& call) const;

  std::mutex mutex_;  // guards what is made once: settings_, choice_, opened_, node_handler_
  std::optional<Result<Settings>> settings_;
  Statistics statistics_;
  ShareableMemory shareable_memory_;
  PeerPermission peer_permission_;
  DeviceMemory device_memory_;
  DeviceStaging device_staging_{device_memory_};
  WakeEvent own_wake_event_;
  std::unique_ptr<ProviderChoice> choice_;                           // owns the endpoints
  std::array<std::atomic<OpenEndpoint*>, kMostEndpoints> opened_{};  // in use, by the bits of their providers
  std::unique_ptr<NodeHandler> node_handler_;
  std::atomic<NodeHandler*> opened_node_handler_{nullptr};
  Entrance from_runtime_;  // guards the endpoints and the node handler in poll_from_runtime()
  std::optional<Error> node_handler_error_;
  std::atomic<void (*)()> runtime_progress_{nullptr};
};

}  // namespace farside

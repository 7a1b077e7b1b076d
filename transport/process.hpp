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
#include <vector>

#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/state.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/device_memory.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/node/shareable_memory.hpp"

namespace farside {

class OpenEndpoint;
class NodeHandler;
class ProviderChoice;
struct UsedEndpoint;

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
  // This process's part in the choice of a provider, which the first call makes. Precondition: settings() succeeds.
  ProviderChoice& provider_choice();
  // Ends the trial of an endpoint (ProviderChoice::use()). From now on, and until shut_down(), this process uses it.
  void use_fabric(OpenEndpoint& tried);
  // Returns the endpoints in use, those of better providers first.
  std::vector<UsedEndpoint> endpoints_in_use() const;
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
  void poll_runtime() override {
    if (void (*hook)() = runtime_progress_.load(std::memory_order_acquire)) hook();
  }
  bool transfers() const override;
  void listen(WakeEvent& wake_event) override;
  void stop_listening(WakeEvent& wake_event) override;
  // For waits that only an endpoint ends.
  WakeEvent& own_wake_event() { return own_wake_event_; }

 private:
  ~Process();

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
  std::unique_ptr<ProviderChoice> choice_;              // owns the endpoints
  std::array<std::atomic<OpenEndpoint*>, 2> opened_{};  // in use, by their providers' bits (preferred_providers())
  std::optional<Result<std::unique_ptr<NodeHandler>>> node_handler_;
  std::atomic<NodeHandler*> opened_node_handler_{nullptr};
  std::atomic_flag in_poll_from_runtime_;  // set while a thread uses the endpoints and the node handler there
  std::atomic<void (*)()> runtime_progress_{nullptr};
};

// Waits until done() returns true, and meanwhile moves the endpoints and the MPI runtime. For application threads.
template <class Done>
void wait_until(WakeEvent& wake_event, Done&& done) {
  if (done()) return;
  for (Waiter waiter(Process::instance(), wake_event);;) {
    waiter.pause();
    if (done()) return;
  }
}

}  // namespace farside

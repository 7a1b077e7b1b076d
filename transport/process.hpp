// SPDX-License-Identifier: BSD-3-Clause
// Process: the owner of everything that outlives a window: settings, statistics, the endpoint, the node handler, and
// the hook that progresses the MPI runtime while an application thread waits.
//
// Thread safety: all members may be called from any thread; opening (fabric, node_handler) is serialised by a mutex.
// Cost: open_fabric and provider_in_use are one load; poll without an endpoint is two loads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "transport/base/address.hpp"
#include "transport/base/entrance.hpp"
#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/shareable_memory.hpp"

namespace farside {

class Fabric;
class NodeHandler;
class ProviderChoice;

class Process final : public Progress {
 public:
  // Never destroyed: threads of the application may still be in farside when the process exits.
  static Process& instance();

  // Reads the settings at the first call and keeps them, or their error.
  Result<const Settings*> settings();
  Statistics& statistics() { return statistics_; }

  // Memory of MPI_Alloc_mem, of which windows may be made.
  ShareableMemory& shareable_memory() { return shareable_memory_; }

  // What this process says about the libfabric providers (fabric/provider_choice.hpp). Once an endpoint is in use, its
  // provider is the only one. The first call opens an endpoint.
  struct ProviderOffer {
    Providers usable = 0;
    Providers wanted = 0;                 // the usable ones, and those whose adapters are there and cannot be used
    std::optional<Error> unknown_device;  // FARSIDE_DEVICE names nothing on this machine
  };
  ProviderOffer offer_providers();
  // Why this process cannot use a provider.
  std::string why_not(Providers one);
  // The provider of the endpoint in use; 0 before.
  Providers provider_in_use() const { return in_use_.load(std::memory_order_acquire); }
  // Begins a trial of a provider: returns the endpoint in use or, before there is one, that of the best provider in
  // `among`, the set on which the processes of the space have agreed. Several threads may be in a trial, of one
  // provider. If it succeeds, the caller ends the trial by one of the three calls that follow. Errors: those of
  // settings() and ProviderChoice::open(); kNoRoute if the endpoint in use, or on trial, has a provider that is not in
  // `among`.
  Result<Fabric*> try_fabric(Providers among);
  // From now on, and until shut_down(), this process uses the endpoint.
  void use_fabric();
  // The endpoint is not to be used, and its provider not to be tried again. It is closed when no other thread tries it,
  // unless it is in use.
  void discard_fabric(const std::string& why);
  // Neither. Precondition of both: the caller holds nothing of the endpoint any more.
  void leave_fabric();
  // Does try_fabric() and use_fabric().
  Result<Fabric*> fabric(Providers among = kAnyProvider);
  // Null until an endpoint is in use.
  Fabric* open_fabric() const { return opened_.load(std::memory_order_acquire); }
  // Returns the handler for on-node peers, and opens it at the first call. An error is kept.
  Result<NodeHandler*> node_handler();
  // Closes the endpoint and ends all threads of farside. Precondition: all windows are freed. Waits for a
  // poll_from_runtime() in another thread; a later one finds nothing to do.
  void shut_down();

  // `hook` progresses the MPI runtime without blocking (for instance MPI_Iprobe). Only waiting application threads call
  // it.
  void set_runtime_progress(void (*hook)()) { runtime_progress_.store(hook, std::memory_order_release); }

  void poll() override;
  // For the MPI runtime's progress engine, which calls it repeatedly while a thread of the application or of the
  // runtime waits there. Returns whether anything completed or arrived; false also if a thread is already in it.
  // Calls no MPI. Costs two loads while nothing is open.
  bool poll_from_runtime();
  void poll_runtime() override;
  void listen(WakeEvent& wake_event) override;
  void stop_listening(WakeEvent& wake_event) override;
  // For waits that only the endpoint ends.
  WakeEvent& own_wake_event() { return own_wake_event_; }

 private:
  Process();
  ~Process();

  ProviderChoice& choice(const Settings& settings);

  std::mutex mutex_;  // guards what is made once: settings_, choice_, trials_, fabric_, node_handler_
  std::optional<Result<Settings>> settings_;
  Statistics statistics_;
  ShareableMemory shareable_memory_;
  WakeEvent own_wake_event_;
  std::unique_ptr<ProviderChoice> choice_;  // until its endpoint is in use
  int trials_ = 0;                          // threads between try_fabric() and the end of the trial
  std::unique_ptr<Fabric> fabric_;
  std::atomic<Providers> in_use_{0};
  std::atomic<Fabric*> opened_{nullptr};
  std::unique_ptr<NodeHandler> node_handler_;
  std::atomic<NodeHandler*> opened_node_handler_{nullptr};
  Entrance from_runtime_;  // guards the endpoint and the node handler in poll_from_runtime()
  std::optional<Error> node_handler_error_;
  std::atomic<void (*)()> runtime_progress_{nullptr};
};

}  // namespace farside

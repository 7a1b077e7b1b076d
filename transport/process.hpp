// SPDX-License-Identifier: BSD-3-Clause
// This process, as farside's one owner of what lives longer than a window: settings, statistics, the endpoint, and
// the hook that moves the MPI runtime while an application thread waits. Comes to life at the first window.
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

  // Settings, read once; the error of a bad one stays.
  Result<const Settings*> settings();
  Statistics& statistics() { return statistics_; }

  // What the application has allocated so that windows may be made of it.
  ShareableMemory& shareable_memory() { return shareable_memory_; }

  // Those of libfabric's providers that this process can use (fabric/provider_choice.hpp); once the endpoint is open,
  // its own only.
  Providers usable_providers();
  // The open endpoint's; none until it was opened.
  Providers provider_in_use() const { return in_use_.load(std::memory_order_acquire); }
  // The endpoint, opened when first asked for, of the best provider among these, on which processes that are to reach
  // each other agree.
  Result<Fabric*> fabric(Providers among = kAnyProvider);
  // Null until it was opened.
  Fabric* open_fabric() const { return opened_.load(std::memory_order_acquire); }
  // Serves on-node peers; as the endpoint.
  Result<NodeHandler*> node_handler();
  // Closes the endpoint and ends both threads. All windows are gone. Waits for a poll_from_runtime() in another thread;
  // one that comes later finds nothing to do.
  void shut_down();

  // Moves the MPI runtime without blocking (for instance MPI_Iprobe); called by waiting application threads only.
  void set_runtime_progress(void (*hook)()) { runtime_progress_.store(hook, std::memory_order_release); }

  void poll() override;
  // For the MPI runtime's progress engine, which calls it again and again while a thread waits there: one of the
  // application's, or one of the runtime's own, at any time. Whether anything moved. False also while another thread is
  // in it, or this one. Calls no MPI.
  bool poll_from_runtime();
  void poll_runtime() override;
  void listen(WakeEvent& wake_event) override;
  void stop_listening(WakeEvent& wake_event) override;
  std::chrono::microseconds longest_sleep() const override;
  // For waits that nobody but the endpoint ends.
  WakeEvent& own_wake_event() { return own_wake_event_; }

 private:
  Process();
  ~Process();

  ProviderChoice& choice(const Settings& settings);

  std::mutex mutex_;  // of what is made once: settings_, fabric_
  std::optional<Result<Settings>> settings_;
  Statistics statistics_;
  ShareableMemory shareable_memory_;
  WakeEvent own_wake_event_;
  std::unique_ptr<ProviderChoice> choice_;  // until the endpoint is in use
  std::unique_ptr<Fabric> fabric_;
  std::atomic<Providers> in_use_{0};
  std::atomic<Fabric*> opened_{nullptr};
  std::unique_ptr<NodeHandler> node_handler_;
  std::atomic<NodeHandler*> opened_node_handler_{nullptr};
  Entrance from_runtime_;  // of poll_from_runtime(), to the endpoint and the node handler
  std::optional<Error> node_handler_error_;
  std::atomic<void (*)()> runtime_progress_{nullptr};
};

}  // namespace farside

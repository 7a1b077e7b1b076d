// SPDX-License-Identifier: BSD-3-Clause
// The facts that `farside doctor` looks up in each rank before the runtime starts, and without any window:
//
//   host
//   farside          the version of the library in this process; empty: it is not loaded
//   library          its file
//   preload          the file of farside in LD_PRELOAD; empty: there is none
//   preload_exists
//   peers            the version of farside-peers
//   mpi              the version of the MPI library: Open MPI v4.1.4
//   launched         the number of ranks that the launcher has passed in the environment
//   limits[], routes[]    as those of `farside info` (info/info.hpp); the routes mapped and cma only
//   settings         the FARSIDE_* that are set
//   bad_setting      the error of a setting that is not allowed; empty: there is none
//   unknown_settings[]
//   sees_no_early_loads   with FARSIDE_CHECK=strict: the obstacle (PageWatch::why_not())
//
// Tries the routes in child processes, so the process has one thread only, and has called prepare_for_children().
// Cost: a few milliseconds.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "tools/common/text.hpp"

namespace farside::tools {

Json rank_facts();

// The first words of MPI_Get_library_version: "Open MPI v4.1.4", "MPICH 4.0.2".
std::string mpi_version(const std::string& library_version);

// Ends a process that does not come to the end of a step in time, so that no rank waits for ever for another.
// Thread safety: one thread begins the steps; any thread may call at().
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  using OnTimeout = std::function<void(const std::string& step, int limit_seconds, const std::string& place)>;
  static constexpr std::chrono::seconds kHeartbeat{15};

  // A thread of this object calls both: `on_timeout` after the limit of a step and the grace, and then ends the process
  // with exit status 1; `heartbeat` every kHeartbeat before.
  Watchdog(OnTimeout on_timeout, std::function<void()> heartbeat)
      : on_timeout_(std::move(on_timeout)),
        heartbeat_(std::move(heartbeat)),
        thread_([this](const std::stop_token& over) { watch(over); }) {}

  // Begins a step, and ends the one before it.
  void begin(const std::string& step, std::chrono::seconds limit) {
    const std::scoped_lock held(mutex_);
    step_ = step;
    place_.clear();
    limit_ = limit;
    begun_ = Clock::now();
  }
  // Ends the last step.
  void end() { begin({}, std::chrono::seconds(0)); }
  // Names the call that this process is in; until the next one, or the end of the step.
  void at(const char* place) {
    const std::scoped_lock held(mutex_);
    place_ = place;
  }
  // Sets the time between the limit of each step and `on_timeout`: 0 at first.
  void set_grace(std::chrono::seconds grace) {
    const std::scoped_lock held(mutex_);
    grace_ = grace;
  }

 private:
  void watch(const std::stop_token& over);

  const OnTimeout on_timeout_;
  const std::function<void()> heartbeat_;
  std::mutex mutex_;
  std::chrono::seconds grace_{0};
  std::chrono::seconds limit_{0};
  Clock::time_point begun_;
  std::string step_;  // empty: none
  std::string place_;
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace farside::tools

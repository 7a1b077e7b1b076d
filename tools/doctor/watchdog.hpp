// SPDX-License-Identifier: BSD-3-Clause
// Ends a process that does not come to the end of a step in time, so that no rank waits for ever for another.
// Thread safety: one thread begins the steps; any thread may call at().
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace farside::tools {

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  using OnTimeout = std::function<void(const std::string& step, int limit_seconds, const std::string& place)>;
  static constexpr std::chrono::seconds kHeartbeat{15};

  // A thread of this object calls both: `on_timeout` after the limit of a step and the grace, and then ends the process
  // with exit status 1; `heartbeat` every kHeartbeat before.
  Watchdog(OnTimeout on_timeout, std::function<void()> heartbeat)
      : on_timeout_(std::move(on_timeout)), heartbeat_(std::move(heartbeat)), thread_([this] { watch(); }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  // Begins a step, and ends the one before it.
  void begin(const std::string& step, std::chrono::seconds limit);
  // Ends the last step.
  void end() { begin({}, std::chrono::seconds(0)); }
  // Names the call that this process is in; until the next one, or the end of the step.
  void at(const char* place);
  // Sets the time between the limit of each step and `on_timeout`: 0 at first.
  void set_grace(std::chrono::seconds grace);

 private:
  void watch();

  const OnTimeout on_timeout_;
  const std::function<void()> heartbeat_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::seconds grace_{0};
  std::chrono::seconds limit_{0};
  Clock::time_point begun_;
  std::string step_;  // empty: none
  std::string place_;
  bool over_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace farside::tools

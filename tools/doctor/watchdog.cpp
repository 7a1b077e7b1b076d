// SPDX-License-Identifier: BSD-3-Clause
#include "tools/doctor/watchdog.hpp"

#include <algorithm>
#include <unistd.h>

namespace farside::tools {

Watchdog::~Watchdog() {
  {
    const std::scoped_lock held(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::begin(const std::string& step, std::chrono::seconds limit) {
  {
    const std::scoped_lock held(mutex_);
    step_ = step;
    place_.clear();
    limit_ = limit;
    begun_ = Clock::now();
  }
  changed_.notify_one();
}

void Watchdog::at(const char* place) {
  const std::scoped_lock held(mutex_);
  place_ = place;
}

void Watchdog::set_grace(std::chrono::seconds grace) {
  {
    const std::scoped_lock held(mutex_);
    grace_ = grace;
  }
  changed_.notify_one();
}

void Watchdog::watch() {
  std::unique_lock held(mutex_);
  Clock::time_point next_heartbeat = Clock::now() + kHeartbeat;
  while (!over_) {
    const Clock::time_point end = begun_ + limit_ + grace_, now = Clock::now();
    if (!step_.empty() && now >= end) {
      const std::string step = step_, place = place_;
      const int seconds = static_cast<int>(limit_.count());
      held.unlock();
      on_timeout_(step, seconds, place);
      _exit(1);
    }
    if (now >= next_heartbeat) {
      next_heartbeat = now + kHeartbeat;
      held.unlock();
      heartbeat_();
      held.lock();
      continue;
    }
    changed_.wait_until(held, step_.empty() ? next_heartbeat : std::min(end, next_heartbeat));
  }
}

}  // namespace farside::tools

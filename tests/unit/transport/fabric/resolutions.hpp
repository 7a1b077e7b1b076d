// SPDX-License-Identifier: BSD-3-Clause
// Address resolutions that end when the test says so (Connections::Opening::resolve).
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "transport/base/address.hpp"

namespace farside::testing {

class Resolutions {
 public:
  // Waits until the resolution of this address may end, and returns its code.
  int resolve(const SocketAddress& address) {
    std::unique_lock lock(mutex_);
    begun_.push_back(address.port);
    changed_.notify_all();
    changed_.wait(lock, [&] { return ends_.contains(address.port); });
    return ends_[address.port];
  }
  // Waits until the first resolution of this address has begun.
  void await(const FabricAddress& address) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::find(begun_, address.socket.port) != begun_.end(); });
  }
  // Returns how many resolutions of this address have begun.
  std::ptrdiff_t begun(const FabricAddress& address) {
    const std::scoped_lock lock(mutex_);
    return std::ranges::count(begun_, address.socket.port);
  }
  // Ends the current and all later resolutions of this address at once.
  void end(const FabricAddress& address, int code = 0) {
    const std::scoped_lock lock(mutex_);
    ends_[address.socket.port] = code;
    changed_.notify_all();
  }
  // Resolutions that begin from now on do not end.
  void hold(const FabricAddress& address) {
    const std::scoped_lock lock(mutex_);
    ends_.erase(address.socket.port);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint16_t> begun_;
  std::map<std::uint16_t, int> ends_;
};

}  // namespace farside::testing

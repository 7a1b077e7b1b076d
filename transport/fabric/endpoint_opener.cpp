// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/endpoint_opener.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/own_thread.hpp"

namespace farside {

EndpointOpener::~EndpointOpener() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock held(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Status EndpointOpener::request(Peer peer, const SocketAddress& address) {
  if (!thread_.joinable()) {
    if (Status started = start_own_thread(thread_, "farside-opener", [this] { run(); }); !started) return started;
  }
  {
    const std::scoped_lock held(mutex_);
    requests_.push_back({peer, address});
  }
  changed_.notify_one();
  return {};
}

void EndpointOpener::cancel(Peer peer) {
  const std::scoped_lock held(mutex_);
  std::erase_if(requests_, [&](const Request& each) { return each.peer == peer; });
  if (under_way_ == peer) under_way_.reset();
  std::erase_if(opened_, [&](const Opened& each) { return each.peer == peer; });
  ready_.store(!opened_.empty(), std::memory_order_relaxed);
}

bool EndpointOpener::begun(Peer peer) const {
  const std::scoped_lock held(mutex_);
  return std::ranges::none_of(requests_, [&](const Request& each) { return each.peer == peer; });
}

std::optional<EndpointOpener::Opened> EndpointOpener::take() {
  // Relaxed: the mutex orders what was opened, and after notify_() no call can miss it.
  if (!ready_.load(std::memory_order_relaxed)) return {};
  const std::scoped_lock held(mutex_);
  if (opened_.empty()) return {};
  Opened next = std::move(opened_.front());
  opened_.pop_front();
  ready_.store(!opened_.empty(), std::memory_order_relaxed);
  return next;
}

void EndpointOpener::run() {
  std::unique_lock held(mutex_);
  while (true) {
    changed_.wait(held, [this] { return stop_ || !requests_.empty(); });
    if (stop_) return;
    const Request request = requests_.front();
    requests_.pop_front();
    under_way_ = request.peer;
    held.unlock();
    Opened opened{request.peer, 0, nullptr};
    opened.code = open_(request.address, opened.endpoint);
    if (opened.code != 0) opened.endpoint.reset();
    held.lock();
    const bool wanted = under_way_ == request.peer;
    under_way_.reset();
    if (wanted) {
      opened_.push_back(std::move(opened));
      ready_.store(true, std::memory_order_relaxed);
    }
    held.unlock();
    if (wanted) {
      notify_();
    } else {
      opened.endpoint.reset();  // without the mutex: closing calls the provider
    }
    held.lock();
  }
}

}  // namespace farside

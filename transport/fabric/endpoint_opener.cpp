// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/endpoint_opener.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/threads.hpp"

namespace farside {

EndpointOpener::~EndpointOpener() {
  {
    const std::scoped_lock held(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status EndpointOpener::request(Peer peer, const SocketAddress& address) {
  bool busy = false;
  {
    const std::scoped_lock held(mutex_);
    busy = requests_.size() >= idle_;
  }
  if (busy && threads_.size() < most_threads_) {
    std::thread thread;
    Status started = start_own_thread(thread, "farside-opener", [this] { run(); });
    if (started) {
      threads_.push_back(std::move(thread));
    } else if (threads_.empty()) {
      return started;
    }
  }
  {
    const std::scoped_lock held(mutex_);
    requests_.push_back({peer, address, ++numbers_});
  }
  changed_.notify_one();
  return {};
}

void EndpointOpener::cancel(Peer peer) {
  const std::scoped_lock held(mutex_);
  const auto of_peer = [&](const auto& each) { return each.peer == peer; };
  std::erase_if(requests_, of_peer);
  std::erase_if(under_way_, of_peer);
  std::erase_if(opened_, of_peer);
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
    ++idle_;
    changed_.wait(held, [this] { return stop_ || !requests_.empty(); });
    --idle_;
    if (stop_) return;
    const Request request = requests_.front();
    requests_.pop_front();
    under_way_.push_back(request);
    held.unlock();
    Opened opened{request.peer, 0, nullptr};
    opened.code = open_(request.address, opened.endpoint);
    if (opened.code != 0) opened.endpoint.reset();
    held.lock();
    const auto is_it = [&](const Request& each) { return each.number == request.number; };
    const bool wanted = std::erase_if(under_way_, is_it) > 0;
    if (wanted) {
      opened_.push_back(std::move(opened));
      ready_.store(true, std::memory_order_relaxed);
    }
    held.unlock();
    if (wanted) {
      notify_();
    } else {
      opened.endpoint.reset();  // without the mutex: closing calls the provider; NOLINT(bugprone-use-after-move)
    }
    held.lock();
  }
}

}  // namespace farside

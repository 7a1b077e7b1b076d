// SPDX-License-Identifier: BSD-3-Clause
// What becomes of buffers for messages that a provider refuses, by a queue of receives that only notes them.
#include <cstddef>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "transport/fabric/messages.hpp"

namespace farside::receives_test {

// A queue that has room for some receives, and then returns FI_EAGAIN.
struct Queue {
  Queue() {
    calls.size = sizeof calls;
    calls.recv = [](fid_ep* posted_to, void*, std::size_t, void*, fi_addr_t, void* context) -> ssize_t {
      auto* const queue = static_cast<Queue*>(posted_to->fid.context);
      ++queue->asked;
      if (queue->taken.size() == queue->room) return -FI_EAGAIN;
      queue->taken.push_back(context);
      return 0;
    };
    endpoint.fid.context = this;
    endpoint.msg = &calls;
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  fi_ops_msg calls{};
  fid_ep endpoint{};
  std::size_t room = 1000;
  std::vector<void*> taken;
  std::size_t asked = 0;
};

const QueueLimits kLimits{.first_receives = 4, .receives_per_peer = 2, .most_receives = 10};

Receive& buffer_of(void* context) { return static_cast<Receive&>(*reinterpret_cast<Context*>(context)); }

TEST_CASE("a queue without memory for the first receives is an error") {
  const LocalMemory memory;
  Queue queue;
  queue.room = 3;
  Receives receives(kLimits, memory);
  const Status begun = receives.begin(&queue.endpoint, 100);
  REQUIRE(!begun.ok());
  CHECK(begun.error().kind == ErrorKind::kNoRoute);
  CHECK(begun.error().text.find("Cannot allocate memory") != std::string::npos);
  CHECK(queue.asked == 4);
}

TEST_CASE("without memory for more receives, those that there are do") {
  const LocalMemory memory;
  Queue queue;
  Receives receives(kLimits, memory);
  REQUIRE(receives.begin(&queue.endpoint, 100).ok());
  CHECK(receives.count() == 4);
  queue.room = 6;
  receives.follow(2);
  CHECK(receives.count() == 6);
  const std::size_t before = queue.asked;
  receives.follow(3);
  CHECK(queue.asked == before);  // they are not asked for again
}

TEST_CASE("a receive that is refused for now is posted later") {
  const LocalMemory memory;
  Queue queue;
  Receives receives(kLimits, memory);
  REQUIRE(receives.begin(&queue.endpoint, 100).ok());
  void* const first = queue.taken[0];
  void* const second = queue.taken[1];
  CHECK(!receives.any_refused());

  queue.room = queue.taken.size();
  receives.post_again(buffer_of(first));
  receives.post_again(buffer_of(second));
  CHECK(receives.any_refused());
  receives.post_refused();
  CHECK(receives.any_refused());
  CHECK(queue.taken.size() == 4);

  queue.room += 1;
  receives.post_refused();
  CHECK(receives.any_refused());
  queue.room += 1;
  receives.post_refused();
  CHECK(!receives.any_refused());
  REQUIRE(queue.taken.size() == 6);
  CHECK(queue.taken[4] == first);
  CHECK(queue.taken[5] == second);
}

}  // namespace farside::receives_test

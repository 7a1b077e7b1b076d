// SPDX-License-Identifier: BSD-3-Clause
// The outstanding operations to a target, and operations that wait to be issued.
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/fabric/pending.hpp"
#include "transport/routes/fabric/target_order.hpp"

namespace farside::outstanding_test {

TEST_CASE("operations that are followed by themselves count among all, and are done whatever else is under way") {
  Outstanding all;
  all.towards(5);
  auto own = std::make_unique<Outstanding>(all);
  all.writes.issued();
  own->writes.issued();
  own->requests.issued();
  CHECK_FALSE(own->done());
  own->writes.completed();
  CHECK_FALSE(own->done());
  CHECK_FALSE(all.requests.done());
  own->requests.completed();
  CHECK(own->done());
  CHECK(all.requests.done());
  CHECK_FALSE(all.writes.done());
  own.reset();
  all.writes.completed();
  CHECK(all.done());
}

TEST_CASE("the error of an operation that is followed by itself is found there, once, and not among all") {
  Outstanding all;
  all.towards(5);
  Outstanding own(all), other(all);
  own.atomics.issued();
  other.atomics.issued();
  own.atomics.failed(Error{ErrorKind::kOther, "lost"});
  own.atomics.completed();
  other.atomics.completed();
  CHECK(all.done());
  CHECK(all.take_error().ok());
  CHECK(other.take_error().ok());
  const Status status = own.take_error();
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().text == "lost");
  CHECK(status.error().rank == 5);
  CHECK(own.take_error().ok());
}

TEST_CASE("of errors of several classes one is told, and none is left") {
  Outstanding all;
  all.towards(5);
  for (Pending* pending : {&all.requests, &all.writes}) {
    pending->issued();
    pending->failed(Error{ErrorKind::kOther, pending == &all.writes ? "write" : "request"});
    pending->completed();
  }
  CHECK(all.take_error().error().text == "write");
  CHECK(all.take_error().ok());
}

TEST_CASE("an operation that is queued has copied its operands if they are small") {
  QueuedOperations kept;
  CHECK(kept.one() == nullptr);
  std::vector<std::byte> small(kCopiedAtCall, std::byte{7});
  CHECK(kept.add(DataOperation::put(8, small.data(), small.size())));
  const std::vector<std::byte> given = small;
  small.assign(small.size(), std::byte{0});
  // It may be handed on.
  const QueuedOperations taken = std::exchange(kept, {});
  REQUIRE(taken.one() != nullptr);
  CHECK(taken.one()->offset == 8);
  CHECK(std::memcmp(taken.one()->origin, given.data(), given.size()) == 0);
  CHECK(kept.empty());

  const std::vector<std::byte> large(kCopiedAtCall + 1);
  CHECK(kept.add(DataOperation::put(0, large.data(), large.size())));
  CHECK(kept.one()->origin == large.data());
}

TEST_CASE("both operands of a compare_and_swap that is queued are copies") {
  QueuedOperations kept;
  std::int64_t origin = 5, compare = 6, fetched = 0;
  CHECK(kept.add(DataOperation::compare_and_swap(0, BasicType::kInt64, &origin, &compare, &fetched)));
  origin = compare = -1;
  std::array<std::int64_t, 2> copies{};
  std::memcpy(&copies[0], kept.one()->origin, sizeof copies[0]);
  std::memcpy(&copies[1], kept.one()->compare, sizeof copies[1]);
  CHECK(copies == std::array<std::int64_t, 2>{5, 6});
  CHECK(kept.one()->fetched == &fetched);
}

TEST_CASE("operations without operands are queued as they are") {
  QueuedOperations kept;
  std::int64_t fetched = 0;
  CHECK(kept.add(DataOperation::accumulate(0, ReduceOp::kNoOp, BasicType::kInt64, nullptr, &fetched, 1)));
  CHECK(kept.one()->origin == nullptr);
  CHECK(kept.one()->compare == nullptr);
}

TEST_CASE("a queued operation needs no memory where one was issued before") {
  QueuedOperations kept;
  const int value = 1;
  CHECK(kept.add(DataOperation::put(0, &value, sizeof value)));
  const void* const first = kept.one()->origin;
  QueuedOperations issued = std::exchange(kept, {});
  kept.reuse(std::move(issued));
  CHECK(kept.empty());
  CHECK(kept.add(DataOperation::put(0, &value, sizeof value)));
  CHECK(kept.one()->origin == first);
  kept.make_list();
  CHECK(kept.one() == nullptr);
  CHECK_FALSE(kept.empty());
}

}  // namespace farside::outstanding_test

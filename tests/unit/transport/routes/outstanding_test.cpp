// SPDX-License-Identifier: BSD-3-Clause
// The outstanding operations to a target.
#include <memory>

#include <catch2/catch.hpp>

#include "transport/fabric/pending.hpp"

namespace farside::outstanding_test {

TEST_CASE("operations that are followed by themselves count among all, and are done whatever else is under way") {
  Outstanding all;
  all.towards(5);
  auto own = std::make_unique<Outstanding>(all);
  all.writes.issued();
  own->writes.issued();
  own->messages.issued();
  CHECK_FALSE(own->done());
  own->writes.completed();
  CHECK_FALSE(own->done());
  CHECK_FALSE(all.messages.done());
  own->messages.completed();
  CHECK(own->done());
  CHECK(all.messages.done());
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
  for (Pending* pending : {&all.messages, &all.writes}) {
    pending->issued();
    pending->failed(Error{ErrorKind::kOther, pending == &all.writes ? "write" : "request"});
    pending->completed();
  }
  CHECK(all.take_error().error().text == "write");
  CHECK(all.take_error().ok());
}

}  // namespace farside::outstanding_test

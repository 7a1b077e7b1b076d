// SPDX-License-Identifier: BSD-3-Clause
// The operations under way towards a target.
#include "transport/fabric/pending.hpp"

#include <memory>

#include <catch2/catch.hpp>

namespace farside::pending_test {

TEST_CASE("operations that are followed by themselves count among all, and are done whatever else is under way") {
  Pending all;
  all.towards(5);
  auto own = std::make_unique<Pending>(&all);
  all.issued(Pending::kWrites);
  own->issued(Pending::kWrites);
  own->issued(Pending::kMessages);
  CHECK_FALSE(own->done());
  own->completed(Pending::kWrites);
  CHECK(own->done(Pending::kWrites));
  CHECK_FALSE(own->done());
  CHECK_FALSE(all.done(Pending::kMessages));
  own->completed(Pending::kMessages);
  CHECK(own->done());
  CHECK(all.done(Pending::kMessages));
  CHECK_FALSE(all.done(Pending::kWrites));
  own.reset();
  all.completed(Pending::kWrites);
  CHECK(all.done());
}

TEST_CASE("operations of each class are counted apart, many of them") {
  Pending all;
  constexpr int kMany = 65'535;
  for (int i = 0; i < kMany; ++i) all.issued(Pending::kReads);
  all.issued(Pending::kAtomics);
  CHECK(all.count(Pending::kReads) == kMany);
  CHECK(all.count(Pending::kAtomics) == 1);
  CHECK(all.count(Pending::kWrites) == 0);
  all.completed(Pending::kAtomics);
  for (int i = 0; i < kMany; ++i) all.completed(Pending::kReads);
  CHECK(all.done());
}

TEST_CASE("all are in use as long as there is a part of them") {
  Pending all;
  CHECK(all.unreferenced());
  auto own = std::make_unique<Pending>(&all);
  CHECK(all.done());
  CHECK_FALSE(all.unreferenced());
  own.reset();
  CHECK(all.unreferenced());
}

TEST_CASE("the error of an operation that is followed by itself is found there, once, and not among all") {
  Pending all;
  all.towards(5);
  Pending own(&all), other(&all);
  own.issued(Pending::kAtomics);
  other.issued(Pending::kAtomics);
  own.failed(Error{ErrorKind::kOther, "lost"});
  own.completed(Pending::kAtomics);
  other.completed(Pending::kAtomics);
  CHECK(all.done());
  CHECK(all.take_error().ok());
  CHECK(other.take_error().ok());
  const Status status = own.take_error();
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().text == "lost");
  CHECK(status.error().rank == 5);
  CHECK(own.take_error().ok());
}

TEST_CASE("of several errors the first is told, and none is left") {
  Pending all;
  all.towards(5);
  for (const auto each : {Pending::kMessages, Pending::kWrites}) {
    all.issued(each);
    all.failed(Error{ErrorKind::kOther, each == Pending::kWrites ? "write" : "request"});
    all.completed(each);
  }
  CHECK(all.take_error().error().text == "request");
  CHECK(all.take_error().ok());
}

}  // namespace farside::pending_test

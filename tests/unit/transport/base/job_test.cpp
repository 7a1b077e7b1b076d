// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>

#include "transport/base/trace.hpp"

namespace farside::job_test {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// A process of a launch of four ranks that ran from the 100th to the 110th second.
Job job(std::uint64_t agreed = 0) { return {0, 4, false, agreed, 100 * kSecond, 110 * kSecond}; }
Job later(Job job) {
  job.started += 50 * kSecond;
  job.written += 50 * kSecond;
  return job;
}
bool together(const Job& a, const Job& b) {
  CHECK(a.may_be_same_launch(b) == b.may_be_same_launch(a));
  return a.may_be_same_launch(b);
}

}  // namespace

TEST_CASE("what the ranks have agreed on tells launches apart, then the time") {
  CHECK(together(job(7), job(7)));
  CHECK(together(job(7), later(job(7))));
  CHECK_FALSE(together(job(7), job(8)));
  CHECK(together(job(), job()));
  CHECK(together(job(7), job()));
  CHECK_FALSE(together(job(7), later(job())));
  CHECK_FALSE(together(job(), later(job())));
}

TEST_CASE("two clocks may differ by a second") {
  Job soon = job();
  soon.started = job().written + kSecond;
  soon.written = soon.started + kSecond;
  CHECK(together(job(), soon));
  soon.started += 2 * kSecond;
  CHECK_FALSE(together(job(), soon));
}

TEST_CASE("launches of different numbers of ranks differ") {
  Job other = job();
  other.ranks = 2;
  CHECK_FALSE(together(job(), other));
  other.ranks = 0;  // unknown
  CHECK(together(job(), other));
}

TEST_CASE("spawned processes are of the launch of the same time") {
  Job spawned = job(8);
  spawned.ranks = 2;
  spawned.spawned = true;
  CHECK(together(job(7), spawned));
  CHECK_FALSE(together(job(7), later(spawned)));
}

}  // namespace farside::job_test

// SPDX-License-Identifier: BSD-3-Clause
// The first access to watched bytes is seen, by load and by store, on the stack and on the heap; other accesses to the
// same page are executed, and not reported. Needs userfaultfd(2) with UFFDIO_MOVE.
#include "transport/node/page_watch.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

namespace farside::page_watch_test {

namespace {

using Hit = PageWatch::Hit;

std::uint64_t address_of(const volatile void* of) {
  return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(of));
}

PageWatch& watch() {
  static auto* const only = new PageWatch(nullptr);  // as the process's
  return *only;
}

void arm(const volatile int* first, const volatile int* last) {
  const PageWatch::Range range{address_of(first), address_of(last)};
  watch().arm(std::span(&range, 1));
}

// Returns the accesses since arm().
std::vector<Hit> seen() {
  watch().disarm();
  const auto hits = watch().take();
  return {hits.begin(), hits.end()};
}

bool possible() {
  if (PageWatch::why_not().empty()) return true;
  WARN(PageWatch::why_not());
  return false;
}

}  // namespace

TEST_CASE("the first access to watched bytes is seen, whatever else is accessed in their page") {
  if (!possible()) return;
  volatile int beside = 1;
  std::array<volatile int, 4> values{5, 6, 7, 8};
  const auto heap = std::make_unique<volatile int[]>(3000);
  volatile int* const on_heap = heap.get() + 1500;
  for (volatile int* const bytes : {&values[0], on_heap}) {
    int sum = 0;
    arm(bytes, bytes + 4);
    beside = beside + 1;
    sum += bytes[2];
    auto hits = seen();
    REQUIRE(hits.size() == 1);
    CHECK(hits[0].address == address_of(bytes + 2));
    CHECK_FALSE(hits[0].store);
    arm(bytes, bytes + 4);
    for (int i = 0; i < 5; ++i) beside = beside + on_heap[-1] + on_heap[4];
    bytes[3] = sum;
    hits = seen();
    REQUIRE(hits.size() == 1);
    CHECK(hits[0].address == address_of(bytes + 3));
    CHECK(hits[0].store);
    const int stored = bytes[3];
    CHECK(stored == sum);
  }
}

TEST_CASE("other accesses to the page are executed, by the program, the kernel and a child") {
  if (!possible()) return;
  volatile int beside = 1;
  std::array<int, 4> watched{5, 6, 7, 8};
  arm(watched.data(), watched.data() + 4);
  for (int i = 0; i < 1000; ++i) beside = beside + 1;  // more than kSteps
  CHECK(seen().empty());
  const int counted = beside;
  CHECK(counted == 1001);
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  arm(watched.data(), watched.data() + 4);
  int there = 17, back = 0;
  CHECK(write(ends[1], &there, sizeof there) == sizeof there);
  CHECK(read(ends[0], &back, sizeof back) == sizeof back);
  const pid_t child = fork();
  if (child == 0) _exit(watched[1] == 6 && back == 17 ? 0 : 1);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(seen().empty());
  CHECK(back == 17);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("shared memory is left alone, and so is what is unmapped or given back meanwhile") {
  if (!possible()) return;
  const auto map = [](int flags) {
    return static_cast<int*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0));
  };
  int* const shared = map(MAP_SHARED);
  shared[0] = 1;
  arm(shared, shared + 4);
  CHECK(shared[0] == 1);
  CHECK(seen().empty());
  int* const given = map(MAP_PRIVATE);
  given[0] = 1;
  arm(given, given + 1);
  given[1] = 2;  // the page is here again, for one instruction
  CHECK(munmap(given, 8192) == 0);
  CHECK(seen().empty());
  arm(shared, shared + 4);
  CHECK(seen().empty());
  int* const dropped = map(MAP_PRIVATE);
  dropped[8] = 1;
  arm(dropped, dropped + 1);
  CHECK(dropped[8] == 1);
  CHECK(seen().empty());
  CHECK(dropped[8] == 1);
  munmap(dropped, 8192);
  munmap(shared, 8192);
}

TEST_CASE("the watch pauses when accesses to other bytes have taken too long") {
  if (!possible()) return;
  constexpr int kMost = 2000;
  volatile int beside = 1;
  std::array<volatile int, 4> values{};
  const auto is_seen = [&] {
    arm(&values[0], &values[0] + 4);
    for (int i = 0; i < 100; ++i) beside = beside + 1;
    values[1] = 1;
    return !seen().empty();
  };
  int rounds = 0;
  while (rounds < kMost && is_seen()) ++rounds;
  CHECK(rounds < kMost);
}

}  // namespace farside::page_watch_test

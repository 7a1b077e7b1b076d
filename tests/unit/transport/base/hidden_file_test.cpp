// SPDX-License-Identifier: BSD-3-Clause
// A file that is hidden from one library: this test program is the library.
#include <cerrno>
#include <cstdio>
#include <memory>

#include <catch2/catch.hpp>

#include "transport/base/imported_call.hpp"

namespace farside::hidden_file_test {

namespace {

bool can_open(const char* path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "r"), std::fclose);
  return file != nullptr;
}

}  // namespace

TEST_CASE("a file is hidden from one library, other files are not, and it comes back") {
  REQUIRE(can_open("/proc/self/stat"));
  {
    const HiddenFile hidden(reinterpret_cast<const void*>(&can_open), "/proc/self/stat");
    if (!hidden.hides()) return;  // a sanitizer that is linked in has an fopen of its own
    errno = 0;
    CHECK_FALSE(can_open("/proc/self/stat"));
    CHECK(errno == ENOENT);
    CHECK(can_open("/proc/self/status"));
  }
  CHECK(can_open("/proc/self/stat"));
}

TEST_CASE("a file is hidden from the library of the address only") {
  int on_the_stack = 0;
  const HiddenFile hidden(&on_the_stack, "/proc/self/stat");
  CHECK_FALSE(hidden.hides());
  CHECK(can_open("/proc/self/stat"));
}

}  // namespace farside::hidden_file_test

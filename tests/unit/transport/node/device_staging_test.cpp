// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/process.hpp"

namespace farside::device_staging_test {

TEST_CASE("memory for copies of a GPU's memory is kept for the next copy", "[device]") {
  DeviceStaging& staging = Process::instance().device_staging();
  DeviceStaging::Memory first = staging.take(5000, nullptr);
  REQUIRE(first != nullptr);
  std::memset(first.get(), 1, 5000);
  std::byte* const at = first.get();
  const DeviceStaging::Memory beside = staging.take(5000, nullptr);
  REQUIRE(beside.get() != at);
  first.reset();
  DeviceStaging::Memory again = staging.take(8192, nullptr);
  REQUIRE(again.get() == at);
  again.reset();
  REQUIRE(staging.take(8193, nullptr).get() != at);
  REQUIRE(staging.take(0, nullptr) != nullptr);
}

TEST_CASE("a process keeps so much memory for copies and no more", "[device]") {
  DeviceStaging& staging = Process::instance().device_staging();
  REQUIRE(staging.take(DeviceStaging::kLargest + 1, nullptr).get_deleter().kept_bytes == 0);
  std::vector<DeviceStaging::Memory> taken;
  std::size_t kept = 0;
  for (int i = 0; i < 5; ++i) {
    taken.push_back(staging.take(DeviceStaging::kLargest / 2, nullptr));
    REQUIRE(taken.back() != nullptr);
    kept += taken.back().get_deleter().kept_bytes;
  }
  REQUIRE(kept >= DeviceStaging::kMostKept / 2);
  REQUIRE(kept <= DeviceStaging::kMostKept);
  REQUIRE(taken.back().get_deleter().kept_bytes == 0);
}

}  // namespace farside::device_staging_test

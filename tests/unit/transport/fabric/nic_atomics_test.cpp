// SPDX-License-Identifier: BSD-3-Clause
// Atomics of an adapter: farside finds out by a test in which form the provider takes operands.
#include <array>
#include <cstdint>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/fake_process.hpp"

namespace farside::nic_atomics_test {

using namespace farside::testing;

TEST_CASE("atomics of an adapter are right, in whichever form it takes operands") {
  const FakeAtomics form{GENERATE(false, true), false, false};
  CAPTURE(form.by_value);
  const FakeProcess target({}, fake_provider(1 << 20, &form)), origin({}, fake_provider(1 << 20, &form));
  REQUIRE(origin.fabric->nic_atomics());
  std::array<std::uint64_t, 1> words = {0x1122334455667788};
  const Endpoint::Registration registration =
      std::move(target.fabric->register_memory(words.data(), sizeof words, 0).value());
  const Endpoint::Place place{origin.fabric->insert(target.fabric->address()), registration.key, 0};
  const auto take = [&](ControlCall call, std::uint64_t operand, std::uint64_t compare) {
    Pending pending;
    std::uint64_t fetched = 0;
    CHECK(origin.fabric->control(pending, place, {call, {}, 0, operand, compare}, &fetched));
    CHECK(origin.complete(pending));
    return fetched;
  };
  CHECK(take(ControlCall::kFetchAdd, 5, 0) == 0x1122334455667788);
  CHECK(take(ControlCall::kCompareAndSwap, 7, 1) == 0x112233445566778d);
  CHECK(take(ControlCall::kCompareAndSwap, 7, 0x112233445566778d) == 0x112233445566778d);
  // A read is RDMA.
  CHECK(take(ControlCall::kRead, 1, 0) == 7);
  CHECK(words[0] == 7);
}

TEST_CASE("atomics of an adapter that have wrong results are not used") {
  const bool swaps_result = GENERATE(false, true);
  const FakeAtomics form{false, swaps_result, !swaps_result};
  CHECK_FALSE(FakeProcess({}, fake_provider(1 << 20, &form)).fabric->nic_atomics());
}

}  // namespace farside::nic_atomics_test

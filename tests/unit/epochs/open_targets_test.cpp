// SPDX-License-Identifier: BSD-3-Clause
// What operations of one thread see of the open epoch while another thread changes it, under the memory model of C++.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/memory_model.hpp"

// The real header with modelled atomics.
#define std farside_modelled_std
#define farside farside_in_model
#include "epochs/rules/epoch_state.hpp"
#undef std
#undef farside

namespace real = farside_in_model;
using farside::modelled::Execution;
using Results = Execution::Results;
using Word = std::uint64_t;

// One thread checks whether an operation or a flush is allowed, while the other thread makes synchronization calls. At
// first locks open targets 1 and 2. Then the locks end, and a start that waits notes target 3.
TEST_CASE("an operation concurrent with the end of one epoch and the beginning of another sees one of them") {
  const auto results = [](bool flush, bool opens) {
    real::epochs::OpenTargets open(4);
    REQUIRE(open.members().reserve(4));
    for (const int target : {1, 2}) open.members().add(target);
    open.open_members(true);
    const auto synchronize = [&, opens] {
      open.members().remove(1);
      open.members().remove(2);
      open.close_members();
      open.members().add(3);
      if (opens) open.open_members(false);
      return Word{0};
    };
    const auto ask = [&, flush] {
      Word allowed = 0;
      for (const int target : {1, 3}) allowed = allowed * 10 + (flush ? open.flush(target) : open.operation(target));
      return allowed;
    };
    return Execution::all({synchronize, ask});
  };
  // Target 3 is not open before the start is over, and never to a flush.
  CHECK(results(false, false) == std::set<Results>{{0, 0}, {0, 10}});
  CHECK(results(true, true) == std::set<Results>{{0, 0}, {0, 10}});
  // A thread that sees target 1 open, and then target 3, has seen two epochs, one after the other.
  CHECK(results(false, true) == std::set<Results>{{0, 0}, {0, 1}, {0, 10}, {0, 11}});
}

// SPDX-License-Identifier: BSD-3-Clause
// What a process has opened ends only when no thread is in it, and no thread enters it afterwards.
#include "transport/process.hpp"

#include <atomic>
#include <thread>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::process_test {

using namespace farside::testing;

TEST_CASE("the endpoint ends while another thread serves it from the runtime") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    Process& process = Process::instance();
    ranks.check(process.settings().ok(), "the settings are right");
    std::atomic<bool> over{false};
    std::atomic<int> served{0};
    std::thread runtime([&] {
      while (!over.load(std::memory_order_relaxed)) {
        process.poll_from_runtime();
        served.fetch_add(1, std::memory_order_relaxed);
      }
    });
    for (int round = 0; round < 20; ++round) {
      const Result<OpenEndpoint*> tried = process.provider_choice().try_best(~0U);
      if (tried) process.use_fabric(*tried.value());
      ranks.check(tried.ok() && process.node_handler().ok(), "the endpoint is open");
      for (const int before = served.load(); served.load() < before + 10;) std::this_thread::yield();
      process.shut_down();
    }
    over.store(true);
    runtime.join();
  }));
}

}  // namespace farside::process_test

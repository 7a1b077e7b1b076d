// SPDX-License-Identifier: BSD-3-Clause
// What a process has opened ends only when no thread is in it, and no thread enters it afterwards.
#include "transport/process.hpp"

#include <atomic>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/best_endpoint.hpp"

namespace farside::process_test {

TEST_CASE("the endpoint ends while another thread serves it from the runtime") {
  // Needs its own process, as settings are read once.
  const pid_t child = fork();
  if (child == 0) {
    Process& process = Process::instance();
    std::atomic<bool> over{false};
    std::atomic<int> served{0};
    std::thread runtime([&] {
      while (!over.load(std::memory_order_relaxed)) {
        process.poll_from_runtime();
        served.fetch_add(1, std::memory_order_relaxed);
      }
    });
    bool opened = true;
    for (int round = 0; round < 20; ++round) {
      opened = opened && testing::use_best_endpoint().ok() && process.node_handler().ok();
      for (const int before = served.load(); served.load() < before + 10;) std::this_thread::yield();
      process.shut_down();
    }
    over.store(true);
    runtime.join();
    _exit(opened ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace farside::process_test

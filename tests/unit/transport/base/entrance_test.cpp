// SPDX-License-Identifier: BSD-3-Clause
// An object that any thread may enter ends only when no thread is inside, and no thread enters afterwards.
#include <atomic>
#include <memory>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/threads.hpp"
#include "transport/process.hpp"

namespace farside::entrance_test {

TEST_CASE("an entrance admits one thread at a time, and none while it is closed") {
  Entrance entrance;
  CHECK(entrance.try_enter());
  CHECK_FALSE(entrance.try_enter());
  entrance.leave();
  entrance.close();
  CHECK_FALSE(entrance.try_enter());
  entrance.reopen();
  CHECK(entrance.try_enter());
  entrance.leave();
}

TEST_CASE("what is behind a closed entrance may end") {
  struct Inside {
    ~Inside() { value = 0; }
    int value = 4711;
    int used = 0;  // not atomic: one thread at a time changes it
  };
  Entrance entrance;
  std::unique_ptr<Inside> inside = std::make_unique<Inside>();
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0}, entered{0};
  std::vector<std::thread> visitors;
  for (int i = 0; i < 2; ++i) {
    visitors.emplace_back([&] {
      while (!over.load(std::memory_order_relaxed)) {
        if (!entrance.try_enter()) {
          std::this_thread::yield();
          continue;
        }
        if (inside->value != 4711) ++wrong;
        ++inside->used;
        ++entered;
        entrance.leave();
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    for (const int before = entered.load(); entered.load() == before;) std::this_thread::yield();
    entrance.close();
    inside.reset();
    inside = std::make_unique<Inside>();
    entrance.reopen();
  }
  over.store(true);
  for (std::thread& visitor : visitors) visitor.join();
  CHECK(wrong.load() == 0);
}

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
      opened = opened && process.fabric().ok() && process.node_handler().ok();
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

}  // namespace farside::entrance_test

// SPDX-License-Identifier: BSD-3-Clause
// An endpoint over the provider in memory, which stands for one process of a job. No thread of an MPI runtime polls it.
#pragma once

#include <memory>
#include <thread>
#include <utility>

#include "tests/unit/transport/fabric/fake_provider.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/fabric.hpp"

namespace farside::testing {

struct FakeProcess {
  NoProgress progress;
  Statistics statistics;
  std::unique_ptr<Fabric> fabric;

  explicit FakeProcess(const Settings& settings = {}, InfoHandle provider = fake_provider())
      : fabric(std::move(Fabric::open(std::move(provider), settings, progress, statistics).value())) {}

  // Waits until the operations of `pending` are complete. Returns whether none has failed.
  bool complete(Pending& pending) const {
    for (; !pending.done(); std::this_thread::yield()) fabric->poll();
    return pending.take_error().ok();
  }
};

}  // namespace farside::testing

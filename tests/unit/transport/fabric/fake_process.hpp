// SPDX-License-Identifier: BSD-3-Clause
// Endpoints in this process, each of which stands for one process of a job: over the provider in memory, or over tcp.
// No thread of an MPI runtime polls them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/transport/fabric/fake_provider.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::testing {

inline InfoHandle tcp_provider() { return std::move(find_provider("tcp").value()); }

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
  // Writes a word, and waits for it. Returns whether that has succeeded.
  bool put(const Endpoint::Place& place, std::uint64_t value) const {
    Pending pending;
    const bool issued = fabric->write(pending, place, &value, sizeof value).ok();
    return complete(pending) && issued;
  }
};

// A process with words that others access.
struct Exposed : FakeProcess {
  std::vector<std::uint64_t> words;
  Registration registration;

  explicit Exposed(std::size_t count = 1, const Settings& settings = {}, InfoHandle provider = fake_provider())
      : FakeProcess(settings, std::move(provider)),
        words(count),
        registration(std::move(fabric->register_memory(words.data(), 8 * count, 1).value())) {}
  // The place of a word, for this origin.
  Endpoint::Place place_for(const FakeProcess& origin, std::size_t word = 0) const {
    return {origin.fabric->insert(fabric->address()), registration.key, 8 * word};
  }
};

}  // namespace farside::testing

// SPDX-License-Identifier: BSD-3-Clause
// The progress of a process without an MPI runtime, whose endpoints have progress threads of their own. Thread safety:
// any. Cost: none.
#pragma once

#include "transport/base/waiter.hpp"

namespace farside {

struct NoProgress final : Progress {
  void poll() override {}
  void poll_runtime() override {}
  void listen(WakeEvent&) override {}
  void stop_listening(WakeEvent&) override {}
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// What is under way towards one target of a space: three classes of operations, kept in order among themselves (atomics: if
// the provider does), not with the others.
#pragma once

#include "transport/base/result.hpp"
#include "transport/fabric/pending.hpp"

namespace farside {

struct Outstanding {
  Outstanding() = default;
  // Some of the operations of `all`, which somebody wants to follow by themselves: they count there, too, but their errors
  // are found here only.
  explicit Outstanding(Outstanding& all)
      : transfers(&all.transfers), atomics(&all.atomics), requests(&all.requests) {}

  bool done() const { return transfers.done() && atomics.done() && requests.done(); }
  // The first error of each class since the last call, if there is any; of several classes one.
  Status take_error() {
    Status first;
    for (Pending* pending : {&transfers, &atomics, &requests}) {
      if (Status status = pending->take_error(); !status && first) first = std::move(status);
    }
    return first;
  }

  Pending transfers;  // RDMA writes and reads
  Pending atomics;    // by the provider
  Pending requests;   // to the target's agent
};

}  // namespace farside

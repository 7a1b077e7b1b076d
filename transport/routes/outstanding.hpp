// SPDX-License-Identifier: BSD-3-Clause
// Operations under way towards one target over the fabric, in five classes. Operations of one class may be ordered
// among themselves, but not with those of other classes; those of the second rail are not ordered at all. Thread
// safety: that of Pending.
#pragma once

#include <utility>

#include "transport/base/result.hpp"
#include "transport/fabric/pending.hpp"

namespace farside {

struct Outstanding {
  Outstanding() = default;
  // A subset of the operations of `all`, for a request: they count in `all` as well, but only this has their errors.
  explicit Outstanding(Outstanding& all)
      : writes(&all.writes),
        reads(&all.reads),
        atomics(&all.atomics),
        requests(&all.requests),
        second_rail(&all.second_rail) {}

  // Sets the target, for error messages. Precondition: nothing is under way.
  void towards(int rank) {
    for (Pending* pending : {&writes, &reads, &atomics, &requests, &second_rail}) pending->towards(rank);
  }
  bool done() const { return writes.done() && reads.done() && atomics.done() && requests.done() && second_rail.done(); }
  bool has_error() const {
    return writes.has_error() || reads.has_error() || atomics.has_error() || requests.has_error() ||
           second_rail.has_error();
  }
  // Returns the first error since the last call; errors of several classes are all taken, and one is returned.
  Status take_error() {
    Status first;
    for (Pending* pending : {&writes, &reads, &atomics, &requests, &second_rail}) {
      if (Status status = pending->take_error(); !status && first) first = std::move(status);
    }
    return first;
  }

  Pending writes;    // by RDMA
  Pending reads;
  Pending atomics;   // by the adapter
  Pending requests;  // to the target's handler
  Pending second_rail;  // writes and reads by the second device (fabric/second_rail.hpp)
};

}  // namespace farside

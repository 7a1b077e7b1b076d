// SPDX-License-Identifier: BSD-3-Clause
// What is under way towards one target of a space: four classes of operations, kept in order among themselves, not
// with the others. And what is not under way yet: small operations that wait for others to travel
// with.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/operation_list.hpp"
#include "transport/space/bursts.hpp"

namespace farside {

// Small operations that were asked for and not issued. One stays as it is, so that it can still travel alone; several
// are in a list. Guarded by the space's mutex.
class Coalesced {
 public:
  bool empty() const { return !alone_ && list == nullptr; }
  // The operation that is alone, or null.
  const DataOperation* one() const { return alone_ ? &kept_->get() : nullptr; }
  // False, and nothing is changed, if there is no room left.
  bool add(const DataOperation& operation) {
    if (empty()) {
      if (kept_ == nullptr) kept_ = std::make_unique<KeptOperation>();
      kept_->keep(operation);
      alone_ = true;
      return true;
    }
    make_list();
    return list->add(operation);
  }
  // Precondition: an operation that is alone fits into a list (OperationList::kMostInOne).
  void make_list() {
    if (list == nullptr) list = std::make_unique<OperationList>();
    if (alone_) list->add(kept_->get());
    alone_ = false;
  }
  // Takes the memory of what has been issued, for the operations to come.
  void reuse(Coalesced issued) {
    if (kept_ == nullptr) kept_ = std::move(issued.kept_);
  }

  std::unique_ptr<OperationList> list;

 private:
  bool alone_ = false;
  std::unique_ptr<KeptOperation> kept_;
};

struct Outstanding {
  explicit Outstanding(int rank) {
    for (Pending* pending : {&writes, &reads, &atomics, &requests}) pending->towards(rank);
  }
  // Some of the operations of `all`, which somebody wants to follow by themselves: they count there, too, but their
  // errors are found here only.
  explicit Outstanding(Outstanding& all)
      : writes(&all.writes), reads(&all.reads), atomics(&all.atomics), requests(&all.requests) {}

  bool done() const { return writes.done() && reads.done() && atomics.done() && requests.done(); }
  // The first error of each class since the last call, if there is any; of several classes one.
  Status take_error() {
    Status first;
    for (Pending* pending : {&writes, &reads, &atomics, &requests}) {
      if (Status status = pending->take_error(); !status && first) first = std::move(status);
    }
    return first;
  }

  Pending writes;    // by RDMA
  Pending reads;
  Pending atomics;   // by the adapter
  Pending requests;  // to the target's handler
};

// All that goes to one target. What follows is guarded by the space's mutex.
struct AllOutstanding : Outstanding {
  using Outstanding::Outstanding;
  Coalesced coalesced;
  Bursts bursts;
  std::function<Status()> deferred;  // takes the lock that what is coalesced waits for (Space::defer_lock)
  bool sending = false;              // someone has taken what was coalesced, and issues it
  bool release_expected = false;  // what is small waits for the release that ends the epoch
  std::vector<std::unique_ptr<Outstanding>> abandoned;  // whose errors nobody but a flush hears of
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// Operations towards one target of a space: those under way, in four classes, and those that are coalesced.
// Operations of one class may be ordered among themselves, but not with those of other classes.
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

// Small operations that were called and are not issued yet. A single operation is kept as it is, so that it can still
// travel alone; several are in a list. The space's mutex guards it. Memory: a list and a KeptOperation, made at the
// first use.
class Coalesced {
 public:
  bool empty() const { return !alone_ && list == nullptr; }
  // The single operation, or null.
  const DataOperation* one() const { return alone_ ? &kept_->get() : nullptr; }
  // Returns false, and changes nothing, if the list has no room.
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
  // Precondition: a single operation fits into a list (OperationList::kMostInOne).
  void make_list() {
    if (list == nullptr) list = std::make_unique<OperationList>();
    if (alone_) list->add(kept_->get());
    alone_ = false;
  }
  // Takes over the memory of operations that were issued.
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
  // A subset of the operations of `all`, for a request: they count in `all` as well, but only this has their errors.
  explicit Outstanding(Outstanding& all)
      : writes(&all.writes), reads(&all.reads), atomics(&all.atomics), requests(&all.requests) {}

  bool done() const { return writes.done() && reads.done() && atomics.done() && requests.done(); }
  // Returns the first error since the last call; errors of several classes are all taken, and one is returned.
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

// All operations towards one target. The space's mutex guards the members that follow.
struct AllOutstanding : Outstanding {
  using Outstanding::Outstanding;
  Coalesced coalesced;
  Bursts bursts;
  std::function<Status()> deferred;  // takes the deferred lock of the coalesced operations (Space::defer_lock)
  bool sending = false;              // a thread has taken the coalesced operations and issues them
  bool release_expected = false;  // small operations are coalesced until the release that ends the epoch
  std::vector<std::unique_ptr<Outstanding>> abandoned;  // of abandoned requests: a flush returns their errors
};

}  // namespace farside

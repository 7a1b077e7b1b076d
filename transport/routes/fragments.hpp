// SPDX-License-Identifier: BSD-3-Clause
// Fragments: one operation of the application on a derived datatype. Where a route has a cost per operation, small
// fragments travel together in lists to the target's message handler.
//
// Used by one thread, for one operation. Errors: those of the route's operations. Cost: node/on-node.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/handler/operation_list.hpp"
#include "transport/routes/route.hpp"

namespace farside {

class Fragments {
 public:
  // `own`: as in Route::put. `expected`: the approximate number of fragments.
  Fragments(Route& route, int rank, Outstanding* own, std::size_t expected)
      : route_(route), rank_(rank), own_(own), expected_(expected) {
    route.before_fragments(rank);
  }
  Fragments(const Fragments&) = delete;
  Fragments& operator=(const Fragments&) = delete;

  // As the route's operations, on each of `blocks`. Blocks that are put or combined must not overlap, as MPI requires
  // of the entries of a target's datatype.
  Status put(std::uint64_t offset, const void* origin, std::size_t bytes, const Blocks& blocks = {}) {
    return add(Counted::kPut, DataOperation::put(offset, origin, bytes), blocks);
  }
  Status get(std::uint64_t offset, void* origin, std::size_t bytes, const Blocks& blocks = {}) {
    return add(Counted::kGet, DataOperation::get(offset, origin, bytes), blocks);
  }
  Status accumulate(std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                    std::size_t count, Access access, const Blocks& blocks = {});
  // Ends the operation, also after an error: issues the last list or leaves it queued.
  Status end();

 private:
  Status add(Counted what, const DataOperation& operation, const Blocks& blocks);
  Status add_to_list(DataOperation operation, Blocks blocks);
  Status list_is_full();
  Status send_full(bool last);

  Route& route_;
  const int rank_;
  Outstanding* const own_;
  const std::size_t expected_;
  std::unique_ptr<OperationList> list_;
  std::vector<std::unique_ptr<OperationList>> full_;
};

}  // namespace farside

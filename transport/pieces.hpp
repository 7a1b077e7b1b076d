// SPDX-License-Identifier: BSD-3-Clause
// One operation of the application on data that lie in pieces (a derived datatype): where the route pays per operation, small
// pieces travel together in lists for the target's agent, many to a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/space.hpp"

namespace farside {

class Space::Pieces {
 public:
  // `about`: how many pieces there will be, roughly. `own`: where they count, besides (Space::put).
  Pieces(Space& space, int rank, Outstanding* own, std::size_t about);
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  // As Space's; the pieces take effect in this order as far as those of one origin do.
  Status put(std::uint64_t offset, const void* origin, std::size_t bytes) {
    if (!listed_) [[likely]] return space_.put(rank_, offset, origin, bytes, own_);
    space_.count(rank_, Counted::kPut, bytes);
    return add(DataOperation::put(offset, origin, bytes));
  }
  Status get(std::uint64_t offset, void* origin, std::size_t bytes) {
    if (!listed_) [[likely]] return space_.get(rank_, offset, origin, bytes, own_);
    space_.count(rank_, Counted::kGet, bytes);
    return add(DataOperation::get(offset, origin, bytes));
  }
  Status accumulate(std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched, std::size_t count,
                    Access access) {
    if (!listed_) [[likely]] return space_.accumulate(rank_, offset, op, type, origin, fetched, count, access, own_);
    space_.count(rank_, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, count * traits(type).extent);
    return add(DataOperation::accumulate(offset, op, type, origin, fetched, count));
  }
  // After the last one, also if one of them failed: what is left is issued, or waits for others to travel with.
  Status end();

 private:
  Status add(const DataOperation& operation);
  Status issue();

  Space& space_;
  const int rank_;
  Outstanding* const own_;
  const bool listed_;
  std::unique_ptr<OperationList> list_;
};

}  // namespace farside

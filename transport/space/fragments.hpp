// SPDX-License-Identifier: BSD-3-Clause
// Fragments: one operation of the application on a derived datatype. Where a route has a cost per operation, small
// fragments travel together in lists to the target's message handler.
//
// Used by one thread, for one operation. Errors: those of Space's operations. Cost: node/on-node.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/handler/operation_list.hpp"
#include "transport/space/space.hpp"

namespace farside {

class Space::Fragments {
 public:
  // `own`: as in Space::put. `expected`: the approximate number of fragments.
  Fragments(Space& space, int rank, Outstanding* own, std::size_t expected);
  Fragments(const Fragments&) = delete;
  Fragments& operator=(const Fragments&) = delete;

  // As Space's operations, on each of `blocks`. Blocks that are put or combined must not overlap, as MPI requires of
  // the entries of a target's datatype.
  Status put(std::uint64_t offset, const void* origin, std::size_t bytes, const Blocks& blocks = {});
  Status get(std::uint64_t offset, void* origin, std::size_t bytes, const Blocks& blocks = {});
  Status accumulate(std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                    std::size_t count, Access access, const Blocks& blocks = {});
  // Ends the operation, also after an error: issues the last list or leaves it coalesced.
  Status end();

 private:
  bool by_cma() const { return extra_ != nullptr && extra_->address != 0; }
  bool handler_polls() const;
  bool as_one(std::size_t bytes, const Blocks& blocks) const;
  bool in_lists(std::size_t few_for_process_memory) const;
  Status add(const DataOperation& operation, const Blocks& blocks);
  Status add_to_list(DataOperation operation, Blocks blocks);
  Status issue();
  Status execute_full();

  Space& space_;
  const int rank_;
  NodeTarget* const here_;        // null for a target of another node
  NodeTargetExtra* const extra_;  // null for most targets
  PeerNodeHandler* const handler_;
  Outstanding* const own_;
  const std::size_t expected_;
  std::unique_ptr<OperationList> list_;
  std::vector<std::unique_ptr<OperationList>> full_;  // full lists for an on-node peer's handler
};

}  // namespace farside

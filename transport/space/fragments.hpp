// SPDX-License-Identifier: BSD-3-Clause
// One operation of the application on data that lie in pieces (a derived datatype): where the route pays per operation,
// small pieces travel together in lists for the target's handler, many to a message.
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
  // `about`: how many pieces there will be, roughly. `own`: where they count, besides (Space::put).
  Fragments(Space& space, int rank, Outstanding* own, std::size_t expected);
  Fragments(const Fragments&) = delete;
  Fragments& operator=(const Fragments&) = delete;

  // As Space's, `blocks` of them. No two that are put or combined may meet, as MPI says of the entries of a target's
  // datatype.
  Status put(std::uint64_t offset, const void* origin, std::size_t bytes, const Blocks& blocks = {});
  Status get(std::uint64_t offset, void* origin, std::size_t bytes, const Blocks& blocks = {});
  Status accumulate(std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                    std::size_t count, Access access, const Blocks& blocks = {});
  // After the last one, also if one of them failed: what is left is issued, or waits for others to travel with.
  Status end();

 private:
  bool in_lists(std::size_t few_for_process_memory) const;
  Status add(const DataOperation& operation, const Blocks& blocks);
  Status add_to_list(DataOperation operation, Blocks blocks);
  Status issue();
  Status execute_full();

  Space& space_;
  const int rank_;
  Outstanding* const own_;
  const std::size_t expected_;
  std::unique_ptr<OperationList> list_;
  std::vector<std::unique_ptr<OperationList>> full_;  // for an on-node peer's handler
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// One operation of the application on data that lie in pieces (a derived datatype): where the route pays per operation, small
// pieces travel together in lists for the target's agent, many to a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/agent/operation_list.hpp"
#include "transport/space.hpp"

namespace farside {

class Space::Pieces {
 public:
  // `about`: how many pieces there will be, roughly. `own`: where they count, besides (Space::put).
  Pieces(Space& space, int rank, Outstanding* own, std::size_t about);
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  // As Space's, `blocks` of them. No two that are put or combined may meet, as MPI says of the entries of a target's datatype.
  Status put(std::uint64_t offset, const void* origin, std::size_t bytes, const Blocks& blocks = {});
  Status get(std::uint64_t offset, void* origin, std::size_t bytes, const Blocks& blocks = {});
  Status accumulate(std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched, std::size_t count,
                    Access access, const Blocks& blocks = {});
  // After the last one, also if one of them failed: what is left is issued, or waits for others to travel with.
  Status end();

 private:
  bool in_lists(std::size_t few_for_process_memory) const;
  Status add(const DataOperation& operation, const Blocks& blocks);
  Status add_to_list(DataOperation operation, Blocks blocks);
  Status issue();
  Status carry_out_full();

  Space& space_;
  const int rank_;
  Outstanding* const own_;
  const std::size_t about_;
  std::unique_ptr<OperationList> list_;
  std::vector<std::unique_ptr<OperationList>> full_;  // for a neighbour's agent
};

}  // namespace farside

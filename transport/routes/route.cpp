// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/route.hpp"

#include "transport/process.hpp"

namespace farside {

Status Route::accumulate(int rank, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                         std::size_t elements, Access access, Outstanding* own) {
  count(rank, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * traits(type).extent);
  if (op == ReduceOp::kNoOp && fetched == nullptr) return {};
  DataOperation operation = DataOperation::accumulate(offset, op, type, origin, fetched, elements);
  operation.access = access;
  return operate(rank, operation, own);
}

Status Route::compare_and_swap(int rank, std::uint64_t offset, BasicType type, const void* origin, const void* compare,
                               void* fetched) {
  count(rank, Counted::kCompareAndSwap, traits(type).extent);
  return operate(rank, DataOperation::compare_and_swap(offset, type, origin, compare, fetched), nullptr);
}

void Route::take_rules(const AccumulateRules& rules) {
  rules_ = rules;
  counting_ = Process::instance().statistics().enabled();
}

void Route::count_slow(int rank, Counted what, std::size_t bytes) const {
  if (counts_ == nullptr) return Process::instance().statistics().add(kind(rank), what, bytes);
  if (OperationCounts::Row* row = counts_->row(rank)) return counts_->add_here(*row, what, bytes);
  counts_->add(rank, what, bytes);
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/route.hpp"

#include "transport/process.hpp"

namespace farside {

void Route::take_rules(const AccumulateRules& rules) {
  rules_ = rules;
  counting_ = Process::instance().statistics().enabled();
}

void Route::count_slow(int rank, Counted what, std::size_t bytes) const {
  if (counts_ == nullptr) return Process::instance().statistics().add(kind(rank), what, bytes);
  if (OperationCounts::Row* row = counts_->row(rank)) return counts_->add_here(*row, what, bytes);
  counts_->add(rank, what, bytes);
}

Status Fragments::add(const DataOperation& operation) {
  if (operation.is_nothing()) return {};
  if (std::optional<Status> moved = route_.move_blocks(rank_, operation, expected_)) return std::move(*moved);
  const bool in_lists = expected_ >= route_.fewest_in_list(rank_, operation.atomic());
  if (in_lists) route_.count(rank_, operation.counted(), operation.bytes() * operation.blocks);
  const bool by_nic = operation.atomic() && route_.rules().integers_by_nic;
  if (in_lists && operation.bytes() <= kMostCoalesced && !by_nic) return add_to_list(operation);
  for (std::size_t block = 0; block < operation.blocks; ++block) {
    DataOperation one = operation.behind(block);
    one.blocks = 1;
    Result<bool> alone = !in_lists || one.bytes() > kMostCoalesced;
    if (!in_lists) {
      route_.count(rank_, operation.counted(), one.bytes());
    } else {
      if (!alone.value()) alone = route_.goes_alone(rank_, one);
      if (!alone) return alone.error();
      if (Status status = alone.value() ? list_is_full() : add_to_list(one); !status) return status;
    }
    if (!alone.value()) continue;
    if (Status status = route_.operate(rank_, one, own_); !status) return status;
  }
  return {};
}

Status Fragments::add_to_list(DataOperation operation) {
  while (true) {
    if (list_ == nullptr) list_ = patiently([] { return OperationList::take_spare(); });
    const std::size_t added = patiently([&] { return list_->add(operation); });
    if (added == operation.blocks) return {};
    operation = operation.behind(added);
    if (Status status = list_is_full(); !status) return status;
  }
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/statistics.hpp"

#include "transport/base/result.hpp"

namespace farside {

// Not inline, as it is called once per epoch, target and kind. The operation has begun, so it must not fail.
void OperationCounts::touch(Row& row, Counted what) {
  patiently([&] { touched_.push_back({&row, what}); });
}

OperationCounts::Row& OperationCounts::find(int target) {
  const auto [found, is_new] = patiently([&] { return rows_.try_emplace(target); });
  Row& row = found->second;
  if (!is_new) return row;
  row.target = target;
  row.before = last_row_.load(std::memory_order_relaxed);
  last_row_.store(&row, std::memory_order_release);
  return row;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/operation_counts.hpp"

namespace farside {

// Not inline, as it is called once per epoch, target and kind.
void OperationCounts::touch(Row& row, Counted what) { touched_.push_back({&row, what}); }

OperationCounts::Row& OperationCounts::find(int target) {
  Row& row = rows_[target];
  row.target = target;
  return row;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/operation_counts.hpp"

namespace farside {

// Not inline, as it is called once per epoch, target and kind.
void OperationCounts::touch(std::int32_t target, Counted what) { touched_.push_back({target, what}); }

}  // namespace farside

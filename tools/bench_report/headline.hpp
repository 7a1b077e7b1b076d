// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "tools/bench_report/result.hpp"

namespace farside::tools {

// Says in words what a result of `farside bench` has measured, of which runtimes, where and how often. Throws a json
// exception if the result lacks something.
std::string headline(const Json& result);

}  // namespace farside::tools

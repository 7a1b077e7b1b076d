// SPDX-License-Identifier: BSD-3-Clause
// A result as one HTML file that needs nothing else: plots, tables, the machine, and the JSON itself.
#pragma once

#include <string>

#include "tools/bench_report/result.hpp"

namespace farside::tools {

std::string html_report(const Json& result);

}  // namespace farside::tools

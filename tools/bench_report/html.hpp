// SPDX-License-Identifier: BSD-3-Clause
// Writes a result as one self-contained HTML file: plots, tables, the machine, and the JSON itself.
#pragma once

#include <string>

#include "tools/bench_report/result.hpp"

namespace farside::tools {

std::string html_report(const Json& result);

}  // namespace farside::tools

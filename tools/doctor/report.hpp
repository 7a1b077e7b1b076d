// SPDX-License-Identifier: BSD-3-Clause
// The text of `farside doctor --report`, to be pasted into a bug report: versions, the environment, the examination,
// and `farside info` of the machine where the command runs.
#pragma once

#include <string>

#include "tools/child.hpp"
#include "tools/doctor/anonymizer.hpp"
#include "tools/json.hpp"

namespace farside::tools {

// `info`: of gather_info(). The variables FARSIDE_* and FI_* of `environment` are shown. Nothing is shown that
// `anonymizer` takes out; null: all is shown.
std::string report_text(const Json& examination, const Json& info, const Environment& environment,
                        const Anonymizer* anonymizer);

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// JSON as the commands write it: the members of an object keep their order.
#pragma once

#include <nlohmann/json.hpp>

namespace farside::tools {

using Json = nlohmann::ordered_json;

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// Which libfabric provider farside uses (fi_getinfo(3)).
#pragma once

#include <string>

#include "transport/fabric/handles.hpp"

namespace farside {

// `asked` is FARSIDE_PROVIDER, or empty: then the first of farside's preferences that this machine has. The error
// (kBadSetting when `asked` cannot be had, else kNoRoute) lists the providers that there are.
Result<InfoHandle> choose_provider(const std::string& asked);

// Whether it grants that one origin's atomics on one target take effect in the order in which they were issued.
bool orders_atomics(const fi_info& info);

}  // namespace farside

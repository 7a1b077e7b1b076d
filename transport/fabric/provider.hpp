// SPDX-License-Identifier: BSD-3-Clause
// Which libfabric provider farside uses (fi_getinfo(3)).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "transport/fabric/handles.hpp"

namespace farside {

// What farside asks libfabric for, and understands the answers of.
constexpr std::uint32_t kFabricApi = FI_VERSION(1, 15);

// The providers that farside takes unasked, the best first.
std::span<const char* const> preferred_providers();

// What a provider must have: fi_getinfo's hints. `order`: msg_order (fi_endpoint(3)).
InfoHandle required_hints(const std::string& provider, std::uint64_t order);

// The provider of exactly this name, if it has all that is required (else kNoRoute).
Result<InfoHandle> find_provider(const std::string& name);

// `asked` is FARSIDE_PROVIDER, or empty: then the first of farside's preferences that this machine has. The error
// (kBadSetting when `asked` cannot be had, else kNoRoute) lists the providers that there are.
Result<InfoHandle> choose_provider(const std::string& asked);

// Whether it grants that one origin's atomics on one target take effect in the order in which they were issued.
bool orders_atomics(const fi_info& info);

}  // namespace farside

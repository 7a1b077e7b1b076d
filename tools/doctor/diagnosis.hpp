// SPDX-License-Identifier: BSD-3-Clause
// Finds what is wrong from an examination (examination.hpp). Thread safety: any thread.
#pragma once

#include <cstdint>

#include "tools/json.hpp"

namespace farside::tools {

// Returns causes[]. If an examination has ended early, judges the parts that exist.
Json causes_of(const Json& examination);

// Whether the ranks may make windows: they load the same farside, with settings that agree. Otherwise a rank would wait
// for ranks that do not take part.
bool allows_windows(const Json& causes);

// Locked memory below this is too little for windows over an RDMA adapter.
inline constexpr std::uint64_t kLittleLockedMemory = std::uint64_t{64} << 20;

}  // namespace farside::tools

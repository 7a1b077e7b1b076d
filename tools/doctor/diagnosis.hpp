// SPDX-License-Identifier: BSD-3-Clause
// What is wrong, by an examination (examination.hpp). Thread safety: any thread.
#pragma once

#include <cstdint>

#include "tools/json.hpp"

namespace farside::tools {

// Returns causes[]. Of an examination that has ended early, judges what there is.
Json causes_of(const Json& examination);

// Whether the ranks may make windows: they load the same farside, with settings that agree. Without that, a rank would
// wait for others that do not take part.
bool allows_windows(const Json& causes);

// Locked memory below this is too little for windows over an RDMA adapter.
inline constexpr std::uint64_t kLittleLockedMemory = std::uint64_t{64} << 20;

}  // namespace farside::tools

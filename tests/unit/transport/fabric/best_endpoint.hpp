// SPDX-License-Identifier: BSD-3-Clause
// The endpoint that tests use.
#pragma once

#include "transport/base/result.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/process.hpp"

namespace farside::testing {

constexpr Providers kAnyProvider = ~0U;

// Returns the endpoint of the best provider of this process, which uses it from now on.
inline Result<OpenEndpoint*> use_best_endpoint() {
  Process& process = Process::instance();
  if (Result<const Settings*> known = process.settings(); !known) return known.error();
  Result<OpenEndpoint*> tried = process.provider_choice().try_best(kAnyProvider);
  if (tried) process.use_fabric(*tried.value());
  return tried;
}

}  // namespace farside::testing

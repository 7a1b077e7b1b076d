// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/announcement.hpp"

#include <array>

#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "pmpi/window/window.hpp"
#include "transport/base/log.hpp"
#include "transport/fabric/open_endpoint.hpp"

namespace farside::pmpi {

void announce_first_window(const Window& window, std::size_t nodes, Check check) {
  static constexpr std::array<const char*, 4> kChecks = {"off", "warn", "on", "strict"};
  if (!Log::enabled(LogLevel::kInfo) || !Log::is_new("first window")) return;
  if (library().resources->process_rank() != 0) return;
  const OpenEndpoint* const fabric = window.fabric();
  log(LogLevel::kInfo,
      "farside {} is active on {}; ranks: {}, nodes: {}, routes: {}, provider: {}, device: {}, checks: {}",
      FARSIDE_VERSION, runtime_name(), window.ranks(), nodes, window.routes(),
      fabric != nullptr ? fabric->provider() : "none", window.devices(), kChecks[static_cast<std::size_t>(check)]);
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// The libfabric providers that farside can use (fi_getinfo(3)). Thread safety: any thread may call these functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rdma/fi_endpoint.h>

#include "transport/fabric/handles.hpp"

namespace farside {

// The version of libfabric's interface that farside requests.
constexpr std::uint32_t kFabricApi = FI_VERSION(1, 15);

// The providers that farside takes without FARSIDE_PROVIDER, the best first (transport/README.md, "Provider").
std::span<const char* const> preferred_providers();

// Requirements on a connected endpoint (FI_EP_MSG) besides messages and RMA.
struct EndpointKind {
  std::uint64_t caps;
  std::uint64_t order;   // msg_order (fi_endpoint(3))
};
// The best kind first; the last one requires least.
std::span<const EndpointKind> endpoint_kinds();

// The hints for fi_getinfo with all requirements.
InfoHandle required_hints(const std::string& provider, const EndpointKind& kind);

// The reason why an adapter is not taken without FARSIDE_PROVIDER or FARSIDE_DEVICE.
inline constexpr const char* kAdapterOnlyByName =
    "farside was tried on emulated adapters only; FARSIDE_PROVIDER=verbs, or FARSIDE_DEVICE, takes it";

// Returns the provider of exactly this name, on the device (libfabric: domain) of this name, or on the nearest device
// that meets the requirements (nearest_device.hpp). Errors: kNoRoute, with a list of the provider's other devices.
Result<InfoHandle> find_provider(const std::string& name, const std::string& device = {});

// A provider that may be taken without FARSIDE_PROVIDER: preferred_providers()[preference].
struct Candidate {
  std::size_t preference;
  InfoHandle info;
};
// Returns the candidates of this machine, the best first. `device` is FARSIDE_DEVICE; if it is empty, adapters
// (is_adapter) are left out, since farside was tried on emulated ones only, and libfabric does not look for them unless
// the log is to name them. Logs why it leaves out others (FARSIDE_LOG=info). Errors, if there is no candidate:
// kBadSetting if a device was named, else kNoRoute, with a list of libfabric's providers.
Result<std::vector<Candidate>> candidates(const std::string& device = {});

// Returns the provider that `asked` (FARSIDE_PROVIDER) names, or the first candidate if `asked` is empty. Errors:
// kBadSetting if the named provider cannot be used, else those of candidates().
Result<InfoHandle> choose_provider(const std::string& asked, const std::string& device = {});

// Return whether its connections are queue pairs of an adapter. An adapter takes operations whether the peer exists
// or not, and completes them when the peer's adapter has acknowledged them.
bool is_adapter(const fi_info& info);
bool is_adapter(std::string_view provider);

}  // namespace farside

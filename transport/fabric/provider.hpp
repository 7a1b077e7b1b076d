// SPDX-License-Identifier: BSD-3-Clause
// Which libfabric provider farside uses (fi_getinfo(3)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rdma/fi_endpoint.h>

#include "transport/fabric/handles.hpp"

namespace farside {

// What farside asks libfabric for, and understands the answers of.
constexpr std::uint32_t kFabricApi = FI_VERSION(1, 15);

// The providers that farside takes unasked, the best first (README.md, "Provider").
std::span<const char* const> preferred_providers();

// What a connected endpoint (FI_EP_MSG) must be able to do besides messages and RMA.
struct EndpointKind {
  std::uint64_t caps;
  std::uint64_t order;   // msg_order (fi_endpoint(3))
};
// The best first; the last asks for least.
std::span<const EndpointKind> endpoint_kinds();

// What a provider must have: fi_getinfo's hints.
InfoHandle required_hints(const std::string& provider, const EndpointKind& kind);

// Why an adapter is not taken unasked.
inline constexpr const char* kAdapterOnlyByName =
    "farside was tried on emulated adapters only; FARSIDE_PROVIDER=verbs, or FARSIDE_DEVICE, takes it";

// The provider of exactly this name, on the device (libfabric: domain) of this name, or on the nearest one that has all
// that is required (nearest_device.hpp). Errors: kNoRoute, which lists the provider's devices if it has others.
Result<InfoHandle> find_provider(const std::string& name, const std::string& device = {});

// One that may be taken unasked: preferred_providers()[preference].
struct Candidate {
  std::size_t preference;
  InfoHandle info;
};
// Those that this machine has, the best first; `device` is FARSIDE_DEVICE, or empty: then no adapter (is_adapter), as
// farside was tried on emulated ones only. Says of each other one why not (FARSIDE_LOG=info). The error, if there is
// none, lists what there is (kBadSetting if a device was asked for, else kNoRoute).
Result<std::vector<Candidate>> candidates(const std::string& device = {});

// `asked` is FARSIDE_PROVIDER, or empty: then the first of the candidates. Errors: kBadSetting when one was asked for
// that cannot be had, else as candidates().
Result<InfoHandle> choose_provider(const std::string& asked, const std::string& device = {});

// Whether its connections are queue pairs of an adapter, which takes what it is given whether the peer is there or not,
// and says that it is done when the peer's adapter has acknowledged it.
bool is_adapter(const fi_info& info);

}  // namespace farside

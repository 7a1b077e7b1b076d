// SPDX-License-Identifier: BSD-3-Clause
// The probe of providers, for `farside info`: how farside judges the libfabric providers of this machine, and why.
// The answers come from the choice itself (provider.hpp) and from an endpoint that is opened for the purpose
// (fabric.hpp).
#pragma once

#include <string>
#include <vector>

#include "transport/base/settings.hpp"

namespace farside {

struct ProviderProbe {
  std::string name;
  std::vector<std::string> endpoints;  // all kinds of endpoints that it offers: FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM
  bool usable = false;                 // farside could open an endpoint
  bool chosen = false;
  std::string why;                     // chosen, passed over or refused, and the reason
  // How farside would use it; empty if it is not usable.
  std::string endpoint;                // the kind of endpoint that farside opens
  std::string network;  // the interface or device, and its network, eth0 (10.0.0.0/24); the same of the second device
  std::string atomics;                 // what executes atomics
  std::string progress;                // what makes progress
};

// The version of libfabric: 1.17.0.
std::string fabric_version();
// The file from which libfabric was loaded.
std::string fabric_library();
// The names of all providers of libfabric, whether or not they find a device.
std::vector<std::string> registered_providers();
// The names of the providers that offer an endpoint here, with layered ones (NAME;ofi_rxm), the preferred ones first.
std::vector<std::string> offered_providers();

// The error of every window that needs the fabric; empty if a provider is chosen.
std::string no_choice(const Settings& settings);

// Probes one provider with these settings. The provider may take long or crash; a caller that must survive this calls
// it in a process of its own.
ProviderProbe probe_provider(const std::string& name, const Settings& settings);

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// What farside makes of the libfabric providers of this machine, and why. The answers are those of the choice itself
// (provider.hpp) and of an endpoint that is really opened (fabric.hpp).
#pragma once

#include <string>
#include <vector>

#include "transport/base/settings.hpp"

namespace farside {

struct ProviderProbe {
  std::string name;
  std::vector<std::string> endpoints;  // kinds of endpoints that it offers at all: FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM
  bool usable = false;                 // an endpoint could be opened as farside does
  bool chosen = false;
  std::string why;                     // chosen, passed over or refused
  // What farside would do with it; empty if it is not usable.
  std::string endpoint;                // the kind of endpoint that it opens
  std::string network;                 // the interface or device, and its network: eth0 (10.0.0.0/24)
  std::string atomics;                 // by whom
  std::string progress;                // by whom
};

// The version of libfabric: 1.17.0.
std::string fabric_version();
// The file that it was loaded from.
std::string fabric_library();
// The providers that libfabric has, whether or not they find a device: names.
std::vector<std::string> registered_providers();
// Those that offer something here, layered ones (NAME;ofi_rxm) too, the preferred ones first.
std::vector<std::string> offered_providers();

// The error that every window which needs the fabric would meet; empty if a provider is chosen.
std::string no_choice(const Settings& settings);

// One of them, with the settings of this process (FARSIDE_PROVIDER). A provider may do what it likes meanwhile, take
// long or crash: whoever wants to survive that asks in a process of its own.
ProviderProbe probe_provider(const std::string& name, const Settings& settings);

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The provider that farside takes between hosts, and the reasons against a better one. They follow from the providers
// of each host and from the trials between the hosts (peers.hpp). The output of `farside info --hosts`:
//
//   farside_peers     the version of the format
//   farside
//   hosts[]           see common/host.hpp; each adapter also has `trouble`, empty if it can carry connections
//     providers[]     provider, device, trouble (empty: farside has opened its endpoint there); the best first
//   pairs[]           from, to, provider (empty: none works), device (of `from`), why_not[]: what kept farside from a
//                     better provider
//   all               provider, why_not[]: of a job on all hosts, where all ranks take the same provider
#pragma once

#include <string>
#include <vector>

#include "tools/common/text.hpp"

namespace farside::tools {

// The result of the trials of one provider.
struct ProviderTrials {
  struct Offer {
    std::string device;
    std::string trouble;  // why the host cannot open the provider's endpoint; empty: it has opened one
  };
  std::string provider;
  std::vector<Offer> offers;                      // of each host
  std::vector<std::vector<std::string>> trouble;  // [from][to]: why the trial failed; empty if not
};

// `hosts`: the facts of each host; `trials`: of the providers, the best first.
Json matrix_of(std::vector<Json> hosts, const std::vector<ProviderTrials>& trials);

// Formats the matrix as text, with the reasons below it.
std::string matrix_text(const Json& matrix);

}  // namespace farside::tools

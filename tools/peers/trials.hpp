// SPDX-License-Identifier: BSD-3-Clause
// Tries a provider of libfabric between all hosts, as the first window of a job does (space/provider_agreement.hpp):
// each host opens farside's endpoint, and runs the trial of an adapter (space/provider_trial.hpp) with each other host.
//
// Collective over `comm`, which has one rank of each host. Cost: for n hosts n - 1 rounds, in which each host tries
// one other. A peer that does not answer delays a round by ProviderAgreement::kTrialLimit.
#pragma once

#include <string>
#include <vector>

#include <mpi.h>

#include "tools/common/text.hpp"
#include "tools/peers/matrix.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {

// Returns the providers to try on each host, the best first: those of farside's preference, or FARSIDE_PROVIDER.
std::vector<std::string> providers_to_try(const Settings& settings);

ProviderTrials try_provider(const std::string& provider, const Settings& settings, MPI_Comm comm);

// Tries each provider, and returns the matrix of the hosts, at all ranks.
Json try_hosts(const Settings& settings, MPI_Comm comm);

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// ProviderChoice: chooses the provider of this process's endpoint. Processes that reach each other must use the same
// provider, and not all of them may be able to use the best one of one process.
//
// Not thread-safe: Process calls it under its mutex.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/provider.hpp"

namespace farside {

class ProviderChoice {
 public:
  ProviderChoice(const Settings& settings, Progress& progress, Statistics& statistics)
      : settings_(settings), progress_(progress), statistics_(statistics) {}

  // Returns the usable providers: bit i is preferred_providers()[i]; with FARSIDE_PROVIDER the first bit is the
  // provider that it names. The first call opens the best one, to be sure of it. If there is none, take() returns the
  // reason.
  Providers usable();

  struct Taken {
    Providers provider;  // its bit
    std::unique_ptr<Fabric> fabric;
  };
  // Returns the endpoint of the best provider that is usable and in `among`. To be called until it succeeds once.
  // Errors: those of candidates(), choose_provider() and Fabric::open(); kNoRoute if there is none in `among`.
  Result<Taken> take(Providers among);

 private:
  Status open(Providers one);

  const Settings& settings_;
  Progress& progress_;
  Statistics& statistics_;
  std::optional<Error> error_;               // the reason if no provider is usable
  std::optional<std::vector<Candidate>> candidates_;
  Providers usable_ = 0;
  Providers opened_ = 0;                     // the provider of fabric_
  std::unique_ptr<Fabric> fabric_;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// Which provider the endpoint of this process is of. Processes that are to reach each other must have the same one, and
// not all may be able to use what is best for one of them.
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

  // Those that can be used: bit i is preferred_providers()[i]; with FARSIDE_PROVIDER the first bit stands for the one
  // that it names. The best one is opened, to be sure of it. None: take() says why.
  Providers usable();

  struct Taken {
    Providers provider;  // its bit
    std::unique_ptr<Fabric> fabric;
  };
  // The best of those that are usable and in `among`, open. Once. Errors: as candidates() and Fabric::open(); kNoRoute
  // if there is none.
  Result<Taken> take(Providers among);

 private:
  Status open(Providers one);

  const Settings& settings_;
  Progress& progress_;
  Statistics& statistics_;
  std::optional<Error> error_;               // of all
  std::optional<std::vector<Candidate>> candidates_;
  Providers usable_ = 0;
  Providers opened_ = 0;                     // fabric_'s
  std::unique_ptr<Fabric> fabric_;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// ProviderChoice: this process's part in the choice of the provider (space/provider_agreement.hpp): which ones it can
// use, and the endpoint of the one that is being tried. Processes that reach each other must use the same provider, and
// not all of them may be able to use the best one of one process.
//
// Not thread-safe: Process calls it under its mutex.
#pragma once

#include <memory>
#include <optional>
#include <string>
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
  // provider that it names. The first call opens the best one, to be sure of it. If there is none, open() returns the
  // reason.
  Providers usable();
  // Those that are usable, and those whose adapters are there and cannot be used. Precondition: usable() was called.
  Providers wanted() const { return usable_ | wanted_; }
  // The error of FARSIDE_DEVICE, if it names nothing on this machine. Precondition: usable() was called.
  const std::optional<Error>& unknown_device() const { return unknown_device_; }
  // Why the process cannot use a preferred provider, or no longer. Precondition: it is not among usable().
  std::string why_not(Providers one) const;

  // Returns the endpoint of the best provider that is usable and in `among`, and opens it if it is not open yet.
  // Errors: those of no_candidate(), choose_provider() and Fabric::open(); kNoRoute if there is none in `among`.
  Result<Fabric*> open(Providers among);
  // The provider of the open endpoint; 0 if none is open.
  Providers opened() const { return opened_; }
  // Hands over the open endpoint.
  std::unique_ptr<Fabric> take();
  // Closes the endpoint, if one is open. Its provider is not usable any more.
  void reject(std::string why);

 private:
  void look_for_candidates();
  Status open_one(Providers one);
  void no_longer_usable(Providers one, std::string why);

  const Settings& settings_;
  Progress& progress_;
  Statistics& statistics_;
  std::optional<Error> error_;  // the reason if no provider is usable
  std::optional<Error> unknown_device_;
  std::optional<std::vector<Candidate>> candidates_;
  std::vector<std::string> reasons_;  // per preferred provider: why it is not usable
  Providers usable_ = 0;
  Providers wanted_ = 0;
  Providers opened_ = 0;  // the provider of fabric_
  std::unique_ptr<Fabric> fabric_;
};

}  // namespace farside

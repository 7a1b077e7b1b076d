// SPDX-License-Identifier: BSD-3-Clause
// ProviderChoice: this process's part in the choice of the provider (space/provider_agreement.hpp): the providers that
// it can use, and one endpoint per provider. Processes that communicate must use the same provider. The best provider
// of one process may not be usable for the others.
//
// An endpoint is opened for a trial, and several threads may try it. If one of them uses it, it stays open. After a
// failed trial the process no longer offers the provider, even if the other rank caused the failure: each later group
// would wait for another trial.
//
// Thread safety: any.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/provider.hpp"

namespace farside {

class ProviderChoice {
 public:
  ProviderChoice(const Settings& settings, Progress& progress, Statistics& statistics)
      : settings_(settings), progress_(progress), statistics_(statistics) {}
  // For tests: takes these candidates, whatever the machine has. To be called first.
  void take(std::vector<Candidate> candidates) { take({std::move(candidates), {"", ""}, 0, {}, {}}); }

  // Looks for the candidates at the first call, and opens nothing. Errors: those of choose_provider(), or why there is
  // no usable one any more. Cost of the first call: libfabric starts, and lists its devices.
  Status find();
  // What this process offers to a group: bit i is preferred_providers()[i]; with FARSIDE_PROVIDER the first bit is the
  // provider that it names. The first call opens the best one, to be sure of it. If none is usable, try_best() returns
  // the reason.
  struct Offer {
    Providers usable = 0;
    Providers wanted = 0;                 // the usable ones, and those whose adapters are there and cannot be used
    std::optional<Error> unknown_device;  // FARSIDE_DEVICE names nothing on this machine
  };
  Offer offer();
  // Why the process cannot use a preferred provider, the best one of several, or no longer; empty if that is not known.
  // Precondition: it is not among the usable ones.
  std::string why_not(Providers one) const;

  // Begins a trial: returns the endpoint of the best provider in `among` that is usable or in use, and opens it if it
  // is not open yet. The processes of a space agree on one provider, and each passes that one only, since another
  // thread may make it unusable at any time. The caller ends the trial by one of the two calls that follow. If it does
  // not use the endpoint, it must have released all objects of the endpoint before. Errors: those of choose_provider()
  // and open_endpoint(); kNoRoute if there is none in `among`, with why_not().
  Result<OpenEndpoint*> try_best(Providers among);
  // Ends the trial of an endpoint, which stays open from now on. Returns its provider if it was not in use before, else
  // 0. Closes the endpoints that no thread tries or uses.
  Providers use(const OpenEndpoint& tried);
  // Ends the trial of an endpoint that this thread does not use. If this process's part of it has failed (`why`), its
  // provider is not usable any more, and the endpoint is closed unless it is in use or another thread tries it.
  void leave(const OpenEndpoint& tried, const std::string& why = {});

 private:
  struct Entry {
    Candidate candidate;
    std::unique_ptr<OpenEndpoint> fabric = nullptr;  // null until it is tried, and again if it was not used
    int trials = 0;                                  // threads between try_best() and the end of their trial
    bool in_use = false;
    Providers provider() const { return Providers{1} << candidate.preference; }
  };

  void take(Candidates candidates);
  Status look();
  Providers usable();
  Entry& of(const OpenEndpoint& tried);
  void no_longer_usable(const Entry& entry, Error why);
  Status open(Entry& entry);

  const Settings& settings_;
  Progress& progress_;
  Statistics& statistics_;
  mutable std::mutex mutex_;    // guards what follows
  bool found_ = false;          // candidates were looked for
  bool opened_ = false;         // usable() has opened the best one, if it can be
  std::optional<Error> error_;  // the reason if no provider is usable
  std::optional<Error> unknown_device_;
  std::vector<Entry> entries_;        // the best provider first
  std::vector<std::string> reasons_;  // per preferred provider: why it is not usable
  Providers usable_ = 0;
  Providers wanted_ = 0;
};

}  // namespace farside

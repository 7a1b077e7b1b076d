// SPDX-License-Identifier: BSD-3-Clause
// The libfabric providers that farside can use (fi_getinfo(3)). Thread safety: any thread may call these functions.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/handles.hpp"

namespace farside {

// The version of libfabric's interface that farside requests.
constexpr std::uint32_t kFabricApi = FI_VERSION(1, 15);

// The providers that farside takes without FARSIDE_PROVIDER, the best first (providers.md).
std::span<const char* const> preferred_providers();

// Starts libfabric; otherwise its first call does. Version 1.17 then reads the kernel's symbols twice, 100 ms of
// processor time, which this prevents on a machine without adapters. Sets FI_TCP_STAGING_SBUF_SIZE, unless it is set.
void start_libfabric();

// Returns all that libfabric offers on this machine; null if that is nothing.
InfoHandle all_infos();

// Returns an address in libfabric, which is then loaded (libfabric_on_demand.cpp); null if it cannot be.
const void* libfabric_address();

// Returns the provider of exactly this name, on the device (libfabric: domain) of this name, or on one that meets the
// requirements: the nearest, or one of several (devices.hpp). Emulated adapters meet them only if `emulated`.
// Errors: kNoRoute, with the reason: a list of the provider's other devices, or what is wrong with the adapters
// (devices.hpp); kUnsupported if all adapters are emulated.
Result<InfoHandle> find_provider(const std::string& name, const std::string& device = {}, bool emulated = true);

// A provider that may be taken: preferred_providers()[preference], or that of FARSIDE_PROVIDER, with preference 0.
struct Candidate {
  std::size_t preference;
  InfoHandle info;
  // Of ProviderChoice:
  std::unique_ptr<OpenEndpoint> fabric = nullptr;  // null until it is tried, and again if it was not used
  int trials = 0;                                  // threads between try_best() and the end of their trial
  bool in_use = false;
  Providers provider() const { return Providers{1} << preference; }
};
struct Candidates {
  std::vector<Candidate> found;         // the best first
  std::vector<std::string> reasons;     // why a preferred provider is not among them; empty for those that are
  Providers wanted = 0;                 // those found, and those whose adapters are there and cannot be used
  std::optional<Error> unknown_device;  // kBadSetting: `device` names nothing on this machine
  std::optional<Error> none;            // none is found: kNoRoute, or kBadSetting with FARSIDE_PROVIDER
};
// Returns the candidates of this machine: the provider that `asked` (FARSIDE_PROVIDER) names, or the preferred ones if
// it is empty. `device` is FARSIDE_DEVICE. If it names an adapter of this machine, or nothing, other preferred
// providers are candidates with any device, for the case that not all ranks can use the adapter. Adapters that are
// emulated are candidates only by name. Logs why preferred providers are left out (FARSIDE_LOG=info).
Candidates candidates(const std::string& asked = {}, const std::string& device = {});
// Returns the first candidate. Errors: kBadSetting if the named provider or device cannot be used, else kNoRoute.
Result<InfoHandle> choose_provider(const std::string& asked, const std::string& device = {});

// Return whether its connections are queue pairs of an adapter. An adapter takes operations whether the peer exists
// or not, and completes them when the peer's adapter has acknowledged them.
bool is_adapter(const fi_info& info);
bool is_adapter(std::string_view provider);

// Opens an endpoint on the device that was found, and starts its progress thread. Errors: kNoRoute, kNoMemory or
// kOther.
Result<std::unique_ptr<OpenEndpoint>> open_endpoint(InfoHandle info, const Settings& settings, Progress& progress,
                                                    Statistics& statistics);

// ProviderChoice: this process's part in the choice of the provider (space/provider_agreement.hpp): the providers that
// it can use, and one endpoint per provider. Processes that communicate must use the same provider. The best provider
// of one process may not be usable for the others.
//
// An endpoint is opened for a trial, and several threads may try it. If one of them uses it, it stays open. After a
// failed trial the process no longer offers the provider, even if the other rank caused the failure: each later group
// would wait for another trial.
//
// Thread safety: any.
class ProviderChoice {
 public:
  ProviderChoice(const Settings& settings, Progress& progress, Statistics& statistics)
      : settings_(settings), progress_(progress), statistics_(statistics) {}
  // For tests: takes these candidates, whatever the machine has. To be called first.
  void take(std::vector<Candidate> candidates) { take({std::move(candidates), {"", ""}, 0, {}, {}}); }

  // Looks for the candidates at the first call, and opens nothing. Errors: those of choose_provider(), or why there is
  // no usable one any more. Cost of the first call: libfabric starts, and lists its devices.
  Status find() {
    const std::scoped_lock held(mutex_);
    const std::optional<Error>& none = look().none;
    return none ? Status(*none) : Status();
  }
  // The providers of this process: bit i is preferred_providers()[i]; with FARSIDE_PROVIDER the first bit is the
  // provider that it names. The first call opens the best one, to be sure of it. If none is usable, try_best() returns
  // the reason.
  struct Offer {
    Providers usable = 0;
    Providers wanted = 0;                 // the usable ones, and those whose adapters are there and cannot be used
    std::optional<Error> unknown_device;  // FARSIDE_DEVICE names nothing on this machine
  };
  Offer offer() {
    const std::scoped_lock held(mutex_);
    const Providers now = usable();
    return {now, now | all_->wanted, all_->unknown_device};
  }
  // Why the process cannot use a preferred provider, the best one of several, or no longer; empty if that is not known.
  // Precondition: it is not among the usable ones.
  std::string why_not(Providers one) const {
    const std::scoped_lock held(mutex_);
    const auto index = static_cast<std::size_t>(std::countr_zero(one));
    return all_ && index < all_->reasons.size() ? all_->reasons[index] : std::string();
  }

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
  void take(Candidates candidates) {
    all_ = std::move(candidates);
    for (const Candidate& each : all_->found) usable_ |= each.provider();
  }
  Candidates& look() {
    if (!all_) take(candidates(settings_.provider, settings_.device));
    return *all_;
  }
  Providers usable();
  Candidate& of(const OpenEndpoint& tried) {
    return *std::ranges::find_if(all_->found, [&](const Candidate& each) { return each.fabric.get() == &tried; });
  }
  void no_longer_usable(const Candidate& one, Error why) {
    usable_ &= ~one.provider();
    if (one.preference < all_->reasons.size()) all_->reasons[one.preference] = why.text;
    if (usable_ == 0) all_->none = std::move(why);
  }
  Status open(Candidate& one);

  const Settings& settings_;
  Progress& progress_;
  Statistics& statistics_;
  mutable std::mutex mutex_;       // guards what follows
  std::optional<Candidates> all_;  // as look() has found them; later with the reasons why they are not usable any more
  bool opened_ = false;            // usable() has opened the best one, if it can be
  Providers usable_ = 0;
};

// FabricDomain: the provider, opened: libfabric's fabric, domain and completion queue, what of the provider's
// attributes farside needs, and the memory of this process that peers may access (fi_domain(3), fi_mr(3), fi_cq(3)).
//
// Thread safety: after open() any thread may call all members. Errors: kNoRoute when it is opened, kNoMemory if memory
// cannot be registered. Cost: no member issues an operation; register_memory() pins the pages (verbs: 100 ms per GiB).
// Memory: nothing per peer.
class FabricDomain {
 public:
  // Opens the provider that was found. `completions`: entries of the completion queue; 0: libfabric's
  // default. Errors: kNoRoute.
  static Result<FabricDomain> open(InfoHandle info, std::size_t completions);

  const char* provider() const { return info_->fabric_attr->prov_name; }
  const char* device() const { return info_->domain_attr->name; }
  fi_info* info() const { return info_.get(); }
  fid_fabric* fabric() const { return fabric_.get(); }
  fid_domain* domain() const { return domain_.get(); }
  fid_cq* queue() const { return queue_.get(); }
  // The descriptor of the completion queue, for poll(2).
  int queue_fd() const { return queue_fd_; }

  // As is_adapter(info()).
  bool by_adapter() const { return by_adapter_; }
  // Returns whether connections are sockets of TCP, whose state the kernel tells (sockets.hpp).
  bool by_sockets() const {
    const std::string_view name = provider();
    return name.starts_with("tcp") || name.starts_with("net");
  }
  // Returns whether local buffers must be registered (FI_MR_LOCAL).
  bool registers_local() const { return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  // The most bytes of one write or read of a transfer of so many bytes. Over TCP 4 MiB are 1.1 times as fast in parts
  // of kTcpPart as whole, or in parts of 256 KiB (two hosts on one machine, libfabric 1.17). Each part takes memory
  // until it is complete, so there are at most kMostTcpParts, of whole multiples of kTcpPart: no word is divided.
  static constexpr std::size_t kTcpPart = std::size_t{1} << 20;
  static constexpr std::size_t kMostTcpParts = 64;
  std::size_t largest_part(std::size_t bytes) const {
    const std::size_t largest = info_->ep_attr->max_msg_size;
    return by_adapter_ ? largest : std::min(largest, kTcpPart * (bytes / (kTcpPart * kMostTcpParts) + 1));
  }
  // Returns whether the provider says that connected endpoints have fetch-add and compare-and-swap on 64-bit words.
  bool advertises_atomics() const;

  // As the members of Endpoint.
  Result<Registration> register_memory(void* base, std::size_t bytes, std::uint64_t wanted) const;
  bool keys_are_chosen() const {
    const fi_domain_attr& attributes = *info_->domain_attr;
    return (attributes.mr_mode & (FI_MR_PROV_KEY | FI_MR_VIRT_ADDR)) == 0 &&
           attributes.mr_key_size >= sizeof(std::uint64_t);
  }

 private:
  FabricDomain() = default;

  // libfabric objects, in the order of opening.
  InfoHandle info_;
  FabricHandle<fid_fabric> fabric_;
  FabricHandle<fid_domain> domain_;
  FabricHandle<fid_cq> queue_;
  int queue_fd_ = -1;
  bool by_adapter_ = false;
};

}  // namespace farside

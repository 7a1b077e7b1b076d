// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/provider_choice.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "transport/base/log.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/devices.hpp"
#include "transport/fabric/open_endpoint.hpp"
#include "transport/fabric/provider.hpp"

namespace farside {

Status ProviderChoice::find_named() {
  if (settings_.provider.empty()) return {};
  if (entries_) return error_ ? Status(*error_) : Status();
  if (!named_) named_.emplace(choose_provider(settings_.provider, settings_.device));
  return named_->status();
}

void ProviderChoice::look_for_candidates() {
  if (!settings_.provider.empty()) {
    std::vector<Candidate> only;
    if (Status found = find_named(); found) {
      only.push_back({0, std::move(named_->value())});
    } else {
      error_ = found.error();
    }
    named_.reset();
    take_candidates(std::move(only));
    return;
  }
  Candidates found = candidates(settings_.device);
  if (!found.has_device) unknown_device_ = farside::unknown_device(settings_.device, found);
  if (found.found.empty()) error_ = no_candidate(found);
  reasons_ = std::move(found.reasons);
  wanted_ = found.wanted;
  take_candidates(std::move(found.found));
}

void ProviderChoice::take_candidates(std::vector<Candidate> candidates) {
  entries_.emplace();
  for (Candidate& each : candidates) {
    entries_->push_back({std::move(each), nullptr});
    usable_ |= entries_->back().provider();
  }
  for (Entry& entry : *entries_) {
    const Status opened = open(entry);
    if (opened) break;
    if (usable_ != 0) log(LogLevel::kInfo, "libfabric {}; the next is tried", opened.error().text);
  }
}

Providers ProviderChoice::usable() {
  if (!entries_) look_for_candidates();
  return usable_;
}

std::string ProviderChoice::why_not(Providers one) const {
  const auto index = static_cast<std::size_t>(std::countr_zero(one));
  return index < reasons_.size() ? reasons_[index] : std::string();
}

ProviderChoice::Entry& ProviderChoice::of(const OpenEndpoint& tried) {
  return *std::ranges::find_if(*entries_, [&](const Entry& each) { return each.fabric.get() == &tried; });
}

void ProviderChoice::no_longer_usable(const Entry& entry, Error why) {
  usable_ &= ~entry.provider();
  if (entry.candidate.preference < reasons_.size()) reasons_[entry.candidate.preference] = why.text;
  if (usable_ == 0) error_ = std::move(why);
}

// A provider that cannot be opened is not usable from now on.
Status ProviderChoice::open(Entry& entry) {
  Result<std::unique_ptr<OpenEndpoint>> opened =
      open_endpoint(InfoHandle(fi_dupinfo(entry.candidate.info.get())), settings_, progress_, statistics_);
  if (!opened) {
    no_longer_usable(entry, opened.error());
    return opened.error();
  }
  entry.fabric = std::move(opened.value());
  return {};
}

Result<OpenEndpoint*> ProviderChoice::try_best(Providers among) {
  if (usable() == 0) return *error_;
  const auto found =
      std::ranges::find_if(*entries_, [&](const Entry& each) { return (each.provider() & usable_ & among) != 0; });
  if (found == entries_->end()) {
    if (std::string why = why_not(among); !why.empty()) return Error{ErrorKind::kNoRoute, std::move(why)};
    std::vector<const char*> names;
    for (const Entry& each : *entries_) {
      if ((each.provider() & usable_) != 0) names.push_back(each.candidate.info->fabric_attr->prov_name);
    }
    return Error{
        ErrorKind::kNoRoute,
        fmt::format("the ranks have no libfabric provider in common; this one has {} (FARSIDE_LOG=info: why no others)",
                    fmt::join(names, ", "))};
  }
  if (found->fabric == nullptr) {
    if (Status opened = open(*found); !opened) return opened.error();
  }
  ++found->trials;
  return found->fabric.get();
}

Providers ProviderChoice::use(const OpenEndpoint& tried) {
  Entry& entry = of(tried);
  --entry.trials;
  for (Entry& each : *entries_) {
    if (&each != &entry && !each.in_use && each.trials == 0) each.fabric.reset();
  }
  return std::exchange(entry.in_use, true) ? 0 : entry.provider();
}

void ProviderChoice::discard(const OpenEndpoint& tried, std::string why) {
  Entry& entry = of(tried);
  if (--entry.trials > 0 || entry.in_use) return;
  no_longer_usable(entry, {ErrorKind::kNoRoute, std::move(why)});
  entry.fabric.reset();
}

void ProviderChoice::leave_failed(const OpenEndpoint& tried, std::string why) {
  if (++of(tried).failed_trials < kMostFailedTrials) {
    leave(tried);
  } else {
    discard(tried, std::move(why));
  }
}

namespace {

InfoHandle get_infos(std::uint64_t flags, const fi_info* hints) {
  start_libfabric();
  fi_info* found = nullptr;
  if (fi_getinfo(kFabricApi, nullptr, nullptr, flags, hints, &found) != 0) return nullptr;
  return InfoHandle(found);
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// Hints that accept everything a provider offers.
InfoHandle open_hints(const std::string& provider) {
  InfoHandle hints(fi_allocinfo());
  hints->mode = ~std::uint64_t{0};
  hints->domain_attr->mode = ~std::uint64_t{0};
  // All modes but FI_MR_BASIC and FI_MR_SCALABLE, those of libfabric before 1.5, whose names libfabric 2 deprecates.
  hints->domain_attr->mr_mode = ~(1 << 0 | 1 << 1);
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  return hints;
}

// One requirement, for a query of its own.
struct Requirement {
  const char* lacking;
  void (*ask)(fi_info& hints, const fi_info& required);
};
constexpr Requirement kRequirements[] = {
    {"no RMA", [](fi_info& hints, const fi_info&) { hints.caps = FI_MSG | FI_RMA; }},
    {"no order of messages (FI_ORDER_SAS)",
     [](fi_info& hints, const fi_info& required) {
       hints.tx_attr->msg_order = required.tx_attr->msg_order;
       hints.rx_attr->msg_order = required.rx_attr->msg_order;
     }},
    {"a way to register memory that farside does not offer (such as FI_MR_LOCAL)",
     [](fi_info& hints, const fi_info& required) { hints.domain_attr->mr_mode = required.domain_attr->mr_mode; }},
    {"no use by several threads (FI_THREAD_SAFE)",
     [](fi_info& hints, const fi_info& required) { hints.domain_attr->threading = required.domain_attr->threading; }},
    {"no flow control (FI_RM_ENABLED)",
     [](fi_info& hints, const fi_info& required) {
       hints.domain_attr->resource_mgmt = required.domain_attr->resource_mgmt;
     }},
};

bool offers(const std::string& provider, const fi_info* hints) {
  const InfoHandle infos = get_infos(0, hints);
  for (const fi_info* info = infos.get(); info != nullptr; info = info->next) {
    if (provider == info->fabric_attr->prov_name) return true;
  }
  return false;
}

std::string lacking(const std::string& provider) {
  const InfoHandle required = required_hints(provider, endpoint_kinds().back());
  InfoHandle hints = open_hints(provider);
  hints->ep_attr->type = FI_EP_MSG;
  if (!offers(provider, hints.get())) return "it has no connected endpoint (FI_EP_MSG)";
  std::vector<std::string> all;
  for (const Requirement& requirement : kRequirements) {
    hints = open_hints(provider);
    hints->ep_attr->type = FI_EP_MSG;
    requirement.ask(*hints, *required);
    if (!offers(provider, hints.get())) all.emplace_back(requirement.lacking);
  }
  if (all.empty())
    return "its connected endpoint has each of the things that farside needs, but not all of them together";
  return fmt::format("its connected endpoint has {}", fmt::join(all, ", "));
}

std::string atomics_of(const OpenEndpoint& fabric) {
  if (fabric.nic_atomics()) {
    return "by the adapter of the target on 64-bit integers, and for locks; by farside's handler there for the others";
  }
  return "by farside's handler at the target";
}

std::string progress_of(const fi_info& info) {
  const bool automatic = info.domain_attr->data_progress == FI_PROGRESS_AUTO;
  return fmt::format(
      "by farside's thread in each process, asleep until something arrives (the provider itself promises {})",
      automatic ? "FI_PROGRESS_AUTO" : "none: FI_PROGRESS_MANUAL");
}

}  // namespace

std::string fabric_version() {
  const int placeholder = 0;
  return fi_tostr(&placeholder, FI_TYPE_VERSION);
}

std::string fabric_library() {
  Dl_info info{};
  return dladdr(libfabric_address(), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::vector<std::string> registered_providers() {
  std::vector<std::string> names;
  const InfoHandle infos = get_infos(FI_PROV_ATTR_ONLY, nullptr);
  for (const fi_info* info = infos.get(); info != nullptr; info = info->next)
    add_once(names, info->fabric_attr->prov_name);
  return names;
}

std::vector<std::string> offered_providers() {
  std::vector<std::string> names;
  const InfoHandle infos = get_infos(0, nullptr);
  for (const fi_info* info = infos.get(); info != nullptr; info = info->next)
    add_once(names, info->fabric_attr->prov_name);
  const auto rank = [](const std::string& name) {
    const auto preferred = preferred_providers();
    return std::find(preferred.begin(), preferred.end(), name) - preferred.begin();
  };
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return names;
}

std::string no_choice(const Settings& settings) {
  const Result<InfoHandle> choice = choose_provider(settings.provider, settings.device);
  return choice ? std::string() : choice.error().text;
}

ProviderProbe probe_provider(const std::string& name, const Settings& settings) {
  ProviderProbe result;
  result.name = name;
  const InfoHandle all = get_infos(0, open_hints(name).get());
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    if (name == info->fabric_attr->prov_name)
      add_once(result.endpoints, fi_tostr(&info->ep_attr->type, FI_TYPE_EP_TYPE));
  }
  const Result<InfoHandle> choice = choose_provider(settings.provider, settings.device);
  result.chosen = choice.ok() && name == choice.value()->fabric_attr->prov_name;
  const Result<InfoHandle> info = find_provider(name, settings.device);
  if (!info) {
    // The provider may lack only the device.
    result.why = fmt::format("refused: {}", find_provider(name) ? info.error().text : lacking(name));
    return result;
  }
  NoProgress progress;
  Statistics statistics;
  const Result<std::unique_ptr<OpenEndpoint>> opened =
      open_endpoint(InfoHandle(fi_dupinfo(info.value().get())), settings, progress, statistics);
  if (!opened) {
    result.why = fmt::format("{}: {}", result.chosen ? "chosen, and cannot be opened" : "refused", opened.error().text);
    return result;
  }
  result.usable = true;
  result.endpoint = fi_tostr(&info.value()->ep_attr->type, FI_TYPE_EP_TYPE);
  result.network = fmt::format("{} ({})", info.value()->domain_attr->name, info.value()->fabric_attr->name);
  result.atomics = atomics_of(*opened.value());
  result.progress = progress_of(*info.value());
  const auto preferred = preferred_providers();
  const bool tested = std::find(preferred.begin(), preferred.end(), name) != preferred.end();
  if (result.chosen) {
    result.why = settings.provider.empty() ? "chosen: the first of farside's preferences that is there"
                                           : fmt::format("chosen: FARSIDE_PROVIDER names it{}",
                                                         tested ? "" : "; farside is not tested on it");
  } else if (!settings.provider.empty()) {
    result.why = "passed over: FARSIDE_PROVIDER names another";
  } else if (settings.device.empty() && is_emulated(*info.value())) {
    result.why = "passed over: emulated adapters are taken only if FARSIDE_DEVICE names them";
  } else {
    result.why =
        tested ? "passed over: a better one is there"
               : fmt::format("passed over: farside is not tested on it; FARSIDE_PROVIDER='{}' takes it all the same",
                             name);
  }
  return result;
}

}  // namespace farside

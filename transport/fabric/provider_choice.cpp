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
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/provider.hpp"

namespace farside {

Status ProviderChoice::find() {
  const std::scoped_lock held(mutex_);
  return look();
}

Status ProviderChoice::look() {
  if (!found_) take(candidates(settings_.provider, settings_.device));
  return error_ ? Status(*error_) : Status();
}

void ProviderChoice::take(Candidates candidates) {
  found_ = true;
  unknown_device_ = std::move(candidates.unknown_device);
  error_ = std::move(candidates.none);
  reasons_ = std::move(candidates.reasons);
  wanted_ = candidates.wanted;
  for (Candidate& each : candidates.found) {
    entries_.push_back({std::move(each)});
    usable_ |= entries_.back().provider();
  }
}

Providers ProviderChoice::usable() {
  (void)look();
  if (std::exchange(opened_, true)) return usable_;
  for (Entry& entry : entries_) {
    const Status opened = open(entry);
    if (opened) break;
    if (usable_ != 0) log(LogLevel::kInfo, "libfabric {}; the next is tried", opened.error().text);
  }
  return usable_;
}

ProviderChoice::Offer ProviderChoice::offer() {
  const std::scoped_lock held(mutex_);
  const Providers now = usable();
  return {now, now | wanted_, unknown_device_};
}

std::string ProviderChoice::why_not(Providers one) const {
  const std::scoped_lock held(mutex_);
  const auto index = static_cast<std::size_t>(std::countr_zero(one));
  return index < reasons_.size() ? reasons_[index] : std::string();
}

ProviderChoice::Entry& ProviderChoice::of(const OpenEndpoint& tried) {
  return *std::ranges::find_if(entries_, [&](const Entry& each) { return each.fabric.get() == &tried; });
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
  const std::scoped_lock held(mutex_);
  const Providers now = usable();
  const auto found = std::ranges::find_if(entries_, [&](const Entry& each) {
    return (each.provider() & among) != 0 && (each.in_use || (each.provider() & now) != 0);
  });
  if (found == entries_.end()) {
    if (now == 0) return *error_;
    const auto index = static_cast<std::size_t>(std::countr_zero(among));
    const bool known = index < reasons_.size() && !reasons_[index].empty();
    return Error{ErrorKind::kNoRoute, known ? reasons_[index] : "the ranks have no libfabric provider in common"};
  }
  if (found->fabric == nullptr) {
    if (Status opened = open(*found); !opened) return opened.error();
  }
  ++found->trials;
  return found->fabric.get();
}

Providers ProviderChoice::use(const OpenEndpoint& tried) {
  const std::scoped_lock held(mutex_);
  Entry& entry = of(tried);
  --entry.trials;
  for (Entry& each : entries_) {
    if (&each != &entry && !each.in_use && each.trials == 0) each.fabric.reset();
  }
  return std::exchange(entry.in_use, true) ? 0 : entry.provider();
}

void ProviderChoice::leave(const OpenEndpoint& tried, const std::string& why) {
  const std::scoped_lock held(mutex_);
  Entry& entry = of(tried);
  --entry.trials;
  if (why.empty()) return;
  no_longer_usable(entry, {ErrorKind::kNoRoute, why});
  if (!entry.in_use && entry.trials == 0) entry.fabric.reset();
}

namespace {

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
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

std::vector<std::string> offered_providers() {
  std::vector<std::string> names;
  const InfoHandle infos = all_infos();
  for (const fi_info* info = infos.get(); info != nullptr; info = info->next)
    add_once(names, info->fabric_attr->prov_name);
  const auto rank = [](const std::string& name) { return std::ranges::find(preferred_providers(), name); };
  std::ranges::stable_sort(names, {}, rank);
  return names;
}

ProviderProbe probe_provider(const std::string& name, const Settings& settings) {
  ProviderProbe result;
  result.name = name;
  const InfoHandle all = all_infos();
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    if (name == info->fabric_attr->prov_name)
      add_once(result.endpoints, fi_tostr(&info->ep_attr->type, FI_TYPE_EP_TYPE));
  }
  const Result<InfoHandle> choice = choose_provider(settings.provider, settings.device);
  result.chosen = choice.ok() && name == choice.value()->fabric_attr->prov_name;
  const Result<InfoHandle> info = find_provider(name, settings.device);
  if (!info) {
    const bool connects = std::ranges::find(result.endpoints, std::string("FI_EP_MSG")) != result.endpoints.end();
    result.why = fmt::format("refused: {}", connects ? info.error().text : "it has no connected endpoint (FI_EP_MSG)");
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
  result.network = fmt::format("{} ({})", info.value()->domain_attr->name, info.value()->fabric_attr->name);
  result.atomics = opened.value()->nic_atomics() ? "by the adapter of the target on 64-bit integers, and for locks; by "
                                                   "farside's handler there for the others"
                                                 : "by farside's handler at the target";
  const bool tested = std::ranges::find(preferred_providers(), name) != preferred_providers().end();
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

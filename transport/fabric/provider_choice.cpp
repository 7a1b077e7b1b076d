// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/provider_choice.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/ranges.h>

#include "transport/base/log.hpp"

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

ProviderChoice::Entry& ProviderChoice::of(const Fabric& tried) {
  return *std::ranges::find_if(*entries_, [&](const Entry& each) { return each.fabric.get() == &tried; });
}

void ProviderChoice::no_longer_usable(const Entry& entry, Error why) {
  usable_ &= ~entry.provider();
  if (entry.candidate.preference < reasons_.size()) reasons_[entry.candidate.preference] = why.text;
  if (usable_ == 0) error_ = std::move(why);
}

// A provider that cannot be opened is not usable from now on.
Status ProviderChoice::open(Entry& entry) {
  Result<std::unique_ptr<Fabric>> opened =
      Fabric::open(InfoHandle(fi_dupinfo(entry.candidate.info.get())), settings_, progress_, statistics_);
  if (!opened) {
    no_longer_usable(entry, opened.error());
    return opened.error();
  }
  entry.fabric = std::move(opened.value());
  // Without a second device the endpoint works all the same.
  Result<SecondDevice> second = SecondDevice();
  if (const fi_info* const given = entry.candidate.second.get(); given != nullptr) {
    second.value().info.reset(fi_dupinfo(given));
  } else {
    second = find_second_device(*entry.candidate.info, settings_.second_device);
  }
  Result<std::unique_ptr<Fabric>> rail = std::unique_ptr<Fabric>();
  if (!second) {
    rail = second.error();
  } else if (second.value().info != nullptr) {
    rail = Fabric::open(std::move(second.value().info), settings_, progress_, statistics_);
  }
  entry.fabric->set_second(std::move(rail), second ? second.value().network : 0);
  return {};
}

Result<Fabric*> ProviderChoice::try_best(Providers among) {
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

Providers ProviderChoice::use(const Fabric& tried) {
  Entry& entry = of(tried);
  --entry.trials;
  for (Entry& each : *entries_) {
    if (&each != &entry && !each.in_use && each.trials == 0) each.fabric.reset();
  }
  return std::exchange(entry.in_use, true) ? 0 : entry.provider();
}

void ProviderChoice::discard(const Fabric& tried, std::string why) {
  Entry& entry = of(tried);
  if (--entry.trials > 0 || entry.in_use) return;
  no_longer_usable(entry, {ErrorKind::kNoRoute, std::move(why)});
  entry.fabric.reset();
}

void ProviderChoice::leave_failed(const Fabric& tried, std::string why) {
  if (++of(tried).failed_trials < kMostFailedTrials) {
    leave(tried);
  } else {
    discard(tried, std::move(why));
  }
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/provider_choice.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "transport/base/log.hpp"
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

}  // namespace farside

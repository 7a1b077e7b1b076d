// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/provider_choice.hpp"

#include <bit>
#include <utility>

#include "transport/base/log.hpp"

namespace farside {
namespace {

constexpr Providers kFirst = 1;

Providers best(Providers of) { return of & -of; }

}  // namespace

void ProviderChoice::look_for_candidates() {
  candidates_.emplace();
  if (!settings_.provider.empty()) {
    Result<InfoHandle> info = choose_provider(settings_.provider, settings_.device);
    if (info) {
      candidates_->push_back({0, std::move(info.value())});
    } else {
      error_ = info.error();
    }
    return;
  }
  Candidates found = candidates(settings_.device);
  if (!found.has_device) unknown_device_ = farside::unknown_device(settings_.device, found);
  if (found.found.empty()) error_ = no_candidate(found);
  reasons_ = std::move(found.reasons);
  wanted_ = found.wanted;
  candidates_ = std::move(found.found);
}

Providers ProviderChoice::usable() {
  if (candidates_) return usable_;
  look_for_candidates();
  for (const Candidate& candidate : *candidates_) usable_ |= kFirst << candidate.preference;
  while (usable_ != 0) {
    const Providers one = best(usable_);
    const Status opened = open_one(one);
    if (opened) break;
    no_longer_usable(one, opened.error().text);
    if (usable_ == 0) {
      error_ = opened.error();
    } else {
      log(LogLevel::kInfo, "libfabric {}; the next is tried", opened.error().text);
    }
  }
  return usable_;
}

std::string ProviderChoice::why_not(Providers one) const {
  const auto index = static_cast<std::size_t>(std::countr_zero(one));
  return index < reasons_.size() ? reasons_[index] : std::string();
}

void ProviderChoice::no_longer_usable(Providers one, std::string why) {
  usable_ &= ~one;
  const auto index = static_cast<std::size_t>(std::countr_zero(one));
  if (index < reasons_.size()) reasons_[index] = std::move(why);
}

Status ProviderChoice::open_one(Providers one) {
  fabric_.reset();
  opened_ = 0;
  for (Candidate& candidate : *candidates_) {
    if (kFirst << candidate.preference != one) continue;
    Result<std::unique_ptr<Fabric>> opened =
        Fabric::open(InfoHandle(fi_dupinfo(candidate.info.get())), settings_, progress_, statistics_);
    if (!opened) return opened.error();
    fabric_ = std::move(opened.value());
    opened_ = one;
  }
  return {};
}

Result<Fabric*> ProviderChoice::open(Providers among) {
  if (usable() == 0) return *error_;
  const Providers common = usable_ & among;
  if (common == 0) {
    std::vector<const char*> names;
    for (const Candidate& candidate : *candidates_) {
      if ((kFirst << candidate.preference & usable_) != 0) names.push_back(candidate.info->fabric_attr->prov_name);
    }
    return Error{
        ErrorKind::kNoRoute,
        fmt::format("the ranks have no libfabric provider in common; this one has {} (FARSIDE_LOG=info: why no others)",
                    fmt::join(names, ", "))};
  }
  const Providers one = best(common);
  if (one != opened_) {
    // A provider that cannot be opened is not usable from now on.
    if (Status status = open_one(one); !status) {
      no_longer_usable(one, status.error().text);
      if (usable_ == 0) error_ = status.error();
      return status.error();
    }
  }
  return fabric_.get();
}

std::unique_ptr<Fabric> ProviderChoice::take() {
  opened_ = 0;
  return std::move(fabric_);
}

void ProviderChoice::reject(std::string why) {
  if (opened_ == 0) return;
  if (usable_ == opened_) error_ = Error{ErrorKind::kNoRoute, why};
  no_longer_usable(opened_, std::move(why));
  opened_ = 0;
  fabric_.reset();
}

}  // namespace farside

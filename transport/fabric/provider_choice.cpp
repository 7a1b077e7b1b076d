// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/provider_choice.hpp"

#include <utility>

#include "transport/base/log.hpp"

namespace farside {
namespace {

constexpr Providers kFirst = 1;

Providers best(Providers of) { return of & -of; }

}  // namespace

Providers ProviderChoice::usable() {
  if (candidates_ || error_) return usable_;
  candidates_.emplace();
  if (settings_.provider.empty()) {
    Result<std::vector<Candidate>> found = candidates(settings_.device);
    if (!found) {
      error_ = found.error();
      return 0;
    }
    candidates_ = std::move(found.value());
    for (const Candidate& candidate : *candidates_) usable_ |= kFirst << candidate.preference;
  } else {
    Result<InfoHandle> info = choose_provider(settings_.provider, settings_.device);
    if (!info) {
      error_ = info.error();
      return 0;
    }
    candidates_->push_back({0, std::move(info.value())});
    usable_ = kFirst;
  }
  while (usable_ != 0) {
    const Status opened = open(best(usable_));
    if (opened) break;
    usable_ &= ~best(usable_);
    if (usable_ == 0) {
      error_ = opened.error();
    } else {
      log(LogLevel::kInfo, "libfabric {}; the next is tried", opened.error().text);
    }
  }
  return usable_;
}

Status ProviderChoice::open(Providers one) {
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

Result<ProviderChoice::Taken> ProviderChoice::take(Providers among) {
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
  if (best(common) != opened_) {
    // A provider that cannot be opened is not usable from now on.
    if (Status status = open(best(common)); !status) {
      usable_ &= ~best(common);
      if (usable_ == 0) error_ = status.error();
      return status.error();
    }
  }
  log(LogLevel::kInfo, "libfabric provider {}, device {}: chosen", fabric_->provider(), fabric_->device());
  return Taken{opened_, std::move(fabric_)};
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/provider.hpp"

#include <cstring>
#include <set>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "transport/base/log.hpp"

namespace farside {
namespace {

// In this order. Only what farside is tested on is chosen unasked.
constexpr const char* kPreferred[] = {"tcp;ofi_rxm"};

constexpr std::uint32_t kApiVersion = FI_VERSION(1, 15);

InfoHandle make_hints(const std::string& provider) {
  InfoHandle hints(fi_allocinfo());
  hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  // What rxm grants with atomics in 1.17; the generic FI_ORDER_RAW and so on are refused together with FI_ATOMIC, and
  // so is ATOMIC_WAR (whose read is over when the target has executed the fetch: in order of arrival all the same).
  // SAS keeps one origin's requests to the agent in order, ATOMIC_* its accumulates (accumulate_ordering).
  hints->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAW;
  hints->rx_attr->msg_order = hints->tx_attr->msg_order;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  return hints;
}

Result<InfoHandle> find_provider(const std::string& name) {
  const InfoHandle hints = make_hints(name);
  fi_info* found = nullptr;
  const int code = fi_getinfo(kApiVersion, nullptr, nullptr, 0, hints.get(), &found);
  InfoHandle infos(found);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, fmt::format("fi_getinfo for provider {}", name), code);
  // fi_getinfo matches layered providers by part of their name: ask for exactly what was asked for, as far as given.
  for (fi_info* info = infos.get(); info != nullptr; info = info->next) {
    if (name == info->fabric_attr->prov_name) return InfoHandle(fi_dupinfo(info));
  }
  return Error{ErrorKind::kNoRoute,
               fmt::format("provider {} does not offer a reliable datagram endpoint with RMA and atomics", name)};
}

std::string available_providers() {
  fi_info* found = nullptr;
  if (fi_getinfo(kApiVersion, nullptr, nullptr, 0, nullptr, &found) != 0) return "none";
  const InfoHandle infos(found);
  std::set<std::string> names;
  for (fi_info* info = infos.get(); info != nullptr; info = info->next) names.insert(info->fabric_attr->prov_name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<InfoHandle> choose_provider(const std::string& asked) {
  if (!asked.empty()) {
    Result<InfoHandle> info = find_provider(asked);
    if (info) return info;
    return Error{ErrorKind::kBadSetting, fmt::format("FARSIDE_PROVIDER='{}' cannot be used: {}; libfabric has: {}",
                                                     asked, info.error().text, available_providers())};
  }
  std::string reasons;
  for (const char* name : kPreferred) {
    Result<InfoHandle> info = find_provider(name);
    if (info) {
      log(LogLevel::kInfo, "libfabric provider {}: chosen", name);
      return info;
    }
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", info.error().text);
  }
  return Error{ErrorKind::kNoRoute, fmt::format("no libfabric provider that farside can use: {}; libfabric has: {}; "
                                                "FARSIDE_PROVIDER names one", reasons, available_providers())};
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/provider.hpp"

#include <cstdlib>
#include <cstring>
#include <set>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "transport/base/log.hpp"

namespace farside {
namespace {

// In this order. Only what farside is tested on is chosen unasked.
constexpr const char* kPreferred[] = {"tcp;ofi_rxm"};

// What a provider that orders atomics is asked for (Fabric::orders_atomics). This is what rxm grants with atomics in 1.17;
// the generic FI_ORDER_RAW and so on are refused together with FI_ATOMIC, and so is ATOMIC_WAR (whose read is over when
// the target has executed the fetch: in order of arrival all the same).
constexpr std::uint64_t kAtomicOrder = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAW;

std::string available_providers() {
  fi_info* found = nullptr;
  if (fi_getinfo(kFabricApi, nullptr, nullptr, 0, nullptr, &found) != 0) return "none";
  const InfoHandle infos(found);
  std::set<std::string> names;
  for (fi_info* info = infos.get(); info != nullptr; info = info->next) names.insert(info->fabric_attr->prov_name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

InfoHandle required_hints(const std::string& provider, std::uint64_t order) {
  InfoHandle hints(fi_allocinfo());
  hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->tx_attr->msg_order = order;
  hints->rx_attr->msg_order = hints->tx_attr->msg_order;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  return hints;
}

Result<InfoHandle> find_provider(const std::string& name) {
  // SAS keeps one origin's requests to the agent in order.
  InfoHandle infos;
  int code = 0;
  for (const std::uint64_t order : {FI_ORDER_SAS | kAtomicOrder, FI_ORDER_SAS}) {
    const InfoHandle hints = required_hints(name, order);
    fi_info* found = nullptr;
    code = fi_getinfo(kFabricApi, nullptr, nullptr, 0, hints.get(), &found);
    infos.reset(found);
    if (code == 0) break;
  }
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, fmt::format("fi_getinfo for provider {}", name), code);
  // fi_getinfo matches layered providers by part of their name: ask for exactly what was asked for, as far as given.
  for (fi_info* info = infos.get(); info != nullptr; info = info->next) {
    if (name == info->fabric_attr->prov_name) return InfoHandle(fi_dupinfo(info));
  }
  return Error{ErrorKind::kNoRoute,
               fmt::format("provider {} does not offer a reliable datagram endpoint with RMA and atomics", name)};
}

bool orders_atomics(const fi_info& info) {
  return (info.tx_attr->msg_order & info.rx_attr->msg_order & kAtomicOrder) == kAtomicOrder;
}

void ask_for_small_buffers() {
  constexpr int kLeaveUsersChoice = 0;
  setenv("FI_OFI_RXM_BUFFER_SIZE", fmt::format("{}", kRxmBufferBytes).c_str(), kLeaveUsersChoice);
  // Receives posted per connection; each is a buffer.
  setenv("FI_OFI_RXM_MSG_RX_SIZE", "64", kLeaveUsersChoice);
}

std::span<const char* const> preferred_providers() { return kPreferred; }

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

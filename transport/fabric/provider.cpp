// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/provider.hpp"

#include <cstring>
#include <filesystem>
#include <set>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "transport/base/log.hpp"
#include "transport/fabric/hidden_file.hpp"
#include "transport/fabric/nearest_device.hpp"

namespace farside {
namespace {

// In order of preference. Only providers on which farside is tested are taken without FARSIDE_PROVIDER, and adapters
// only where FARSIDE_DEVICE names one.
constexpr const char* kPreferred[] = {"verbs", "tcp"};

// find_provider takes the first kind that a provider has. SAS orders one origin's requests to the handler, SAW orders
// them behind its writes.
constexpr EndpointKind kKinds[] = {
    {FI_ATOMIC, FI_ORDER_SAS | FI_ORDER_SAW},
    {0, FI_ORDER_SAS | FI_ORDER_SAW},
    {0, FI_ORDER_SAS},
};

// Whether Linux knows an InfiniBand, RoCE or iWARP adapter, or an emulated one.
bool has_adapters() {
  std::error_code failed;
  return !std::filesystem::is_empty("/sys/class/infiniband", failed) && !failed;
}

// libfabric starts at its first call. Version 1.17 then reads the kernel's symbols twice, for adapters that reach the
// memory of GPUs: 100 ms of processor time. Without adapters the result is of no use to anybody.
void start_libfabric() {
  static const bool started = [] {
    if (has_adapters()) return true;
    const HiddenFile hidden(reinterpret_cast<const void*>(&fi_getinfo), "/proc/kallsyms");
    fi_info* names = nullptr;
    if (fi_getinfo(kFabricApi, nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &names) == 0) fi_freeinfo(names);
    return true;
  }();
  (void)started;
}

std::string available_providers() {
  start_libfabric();
  fi_info* found = nullptr;
  if (fi_getinfo(kFabricApi, nullptr, nullptr, 0, nullptr, &found) != 0) return "none";
  const InfoHandle infos(found);
  std::set<std::string> names;
  for (fi_info* info = infos.get(); info != nullptr; info = info->next) names.insert(info->fabric_attr->prov_name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

InfoHandle required_hints(const std::string& provider, const EndpointKind& kind) {
  InfoHandle hints(fi_allocinfo());
  hints->caps = FI_MSG | FI_RMA | kind.caps;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_MSG;
  hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  hints->tx_attr->msg_order = kind.order;
  hints->rx_attr->msg_order = kind.order;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  return hints;
}

Result<InfoHandle> find_provider(const std::string& name, const std::string& device) {
  start_libfabric();
  int code = 0;
  std::set<std::string> devices;
  for (const EndpointKind& kind : kKinds) {
    const InfoHandle hints = required_hints(name, kind);
    fi_info* found = nullptr;
    code = fi_getinfo(kFabricApi, nullptr, nullptr, 0, hints.get(), &found);
    const InfoHandle infos(found);
    fi_info* nearest = nullptr;
    // fi_getinfo also returns layered providers that match in part of their name.
    for (fi_info* info = infos.get(); code == 0 && info != nullptr; info = info->next) {
      if (name != info->fabric_attr->prov_name) continue;
      if (device == info->domain_attr->name) return InfoHandle(fi_dupinfo(info));
      devices.insert(info->domain_attr->name);
      // Of equally near devices, libfabric's first one is taken.
      if (nearest == nullptr || is_nearer(*info, *nearest)) nearest = info;
    }
    if (device.empty() && nearest != nullptr) return InfoHandle(fi_dupinfo(nearest));
  }
  if (!devices.empty()) {
    return Error{ErrorKind::kNoRoute,
                 fmt::format("provider {} has no device {}; it has: {}", name, device, fmt::join(devices, ", "))};
  }
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, fmt::format("fi_getinfo for provider {}", name), code);
  return Error{ErrorKind::kNoRoute,
               fmt::format("provider {} offers no connected endpoint (FI_EP_MSG) with RMA", name)};
}

bool is_adapter(std::string_view provider) { return provider == "verbs"; }

bool is_adapter(const fi_info& info) { return is_adapter(std::string_view(info.fabric_attr->prov_name)); }

std::span<const EndpointKind> endpoint_kinds() { return kKinds; }

std::span<const char* const> preferred_providers() { return kPreferred; }

Result<std::vector<Candidate>> candidates(const std::string& device) {
  std::vector<Candidate> result;
  std::string reasons;
  for (std::size_t i = 0; i < std::size(kPreferred); ++i) {
    // An adapter is taken only if FARSIDE_DEVICE names it. Otherwise libfabric looks for adapters, which may take long,
    // only to name the one that is passed over.
    const bool only_by_name = device.empty() && is_adapter(kPreferred[i]);
    if (only_by_name && !Log::enabled(LogLevel::kInfo)) {
      reasons += fmt::format("{}provider {}: {}", reasons.empty() ? "" : "; ", kPreferred[i], kAdapterOnlyByName);
      continue;
    }
    Result<InfoHandle> info = find_provider(kPreferred[i], device);
    std::string why_not = info ? std::string() : info.error().text;
    if (info && only_by_name) {
      why_not =
          fmt::format("provider {}, device {}: {}", kPreferred[i], info.value()->domain_attr->name, kAdapterOnlyByName);
    }
    if (why_not.empty()) {
      result.push_back({i, std::move(info.value())});
      continue;
    }
    log(LogLevel::kInfo, "libfabric {} is passed over: {}", kPreferred[i], why_not);
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", why_not);
  }
  if (!result.empty()) return result;
  if (!device.empty()) {
    return Error{ErrorKind::kBadSetting,
                 fmt::format("FARSIDE_DEVICE='{}' cannot be used: {}; FARSIDE_PROVIDER names another provider", device,
                             reasons)};
  }
  return Error{ErrorKind::kNoRoute, fmt::format("no libfabric provider that farside can use: {}; libfabric has: {}; "
                                                "FARSIDE_PROVIDER names one", reasons, available_providers())};
}

Result<InfoHandle> choose_provider(const std::string& asked, const std::string& device) {
  if (!asked.empty()) {
    Result<InfoHandle> info = find_provider(asked, device);
    if (info) return info;
    const std::string on = device.empty() ? "" : fmt::format(" with FARSIDE_DEVICE='{}'", device);
    return Error{ErrorKind::kBadSetting, fmt::format("FARSIDE_PROVIDER='{}'{} cannot be used: {}; libfabric has: {}",
                                                     asked, on, info.error().text, available_providers())};
  }
  Result<std::vector<Candidate>> all = candidates(device);
  if (!all) return all.error();
  return std::move(all.value().front().info);
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/provider.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <set>
#include <utility>

#include <fmt/ranges.h>
#include <rdma/fi_atomic.h>

#include "transport/base/imported_call.hpp"
#include "transport/base/log.hpp"
#include "transport/fabric/devices.hpp"
#include "transport/handler/memory_fault.hpp"

namespace farside {

namespace {

// In order of preference. Only providers on which farside is tested are taken without FARSIDE_PROVIDER.
constexpr const char* kPreferred[] = {"verbs", "tcp"};

// Of a connected endpoint (FI_EP_MSG): SAS orders one origin's requests to the handler, SAW orders them behind its
// writes.
constexpr std::uint64_t kOrder = FI_ORDER_SAS | FI_ORDER_SAW;

// The hints for fi_getinfo with all requirements; null if libfabric cannot be loaded. `caps`: besides messages and RMA.
InfoHandle required_hints(const std::string& provider, std::uint64_t caps) {
  InfoHandle hints(fi_allocinfo());
  if (hints == nullptr) return hints;
  hints->caps = FI_MSG | FI_RMA | caps;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_MSG;
  hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  hints->tx_attr->msg_order = kOrder;
  hints->rx_attr->msg_order = kOrder;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  return hints;
}

std::string available_providers() {
  std::set<std::string> names;
  const InfoHandle infos = all_infos();
  for (const fi_info* info = infos.get(); info != nullptr; info = info->next)
    names.insert(info->fabric_attr->prov_name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// libfabric's fopen(3) while it starts: the kernel's symbols, of which verbs asks for those of GPUs' drivers, are not
// there. (fopen itself is found by dlsym(3): this library's own calls are among the redirected ones, if libfabric is
// linked statically.)
std::FILE* open_no_symbols(const char* path, const char* mode) {
  static const auto open = reinterpret_cast<std::FILE* (*)(const char*, const char*)>(::dlsym(RTLD_DEFAULT, "fopen"));
  if (path == nullptr || std::string_view(path) != "/proc/kallsyms") return open(path, mode);
  errno = ENOENT;
  return nullptr;
}

}  // namespace

void start_libfabric() {
  static const bool started = [] {
    // When a socket is full, the tcp provider before 1.18 copies up to 9000 bytes aside, and sends them at a later
    // poll, for which it wakes no thread. Without that buffer it does.
    ::setenv("FI_TCP_STAGING_SBUF_SIZE", "0", 0);
    std::vector<ImportedCall> opens;
    if (adapter_names().empty())
      for (const char* const name : {"fopen", "fopen64"}) opens.emplace_back(libfabric_address(), name);
    for (ImportedCall& each : opens) (void)each.redirect(reinterpret_cast<void*>(&open_no_symbols));
    fi_info* names = nullptr;
    if (fi_getinfo(kFabricApi, nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &names) == 0) fi_freeinfo(names);
    for (ImportedCall& each : opens) each.restore();
    return true;
  }();
  (void)started;
}

InfoHandle all_infos() {
  start_libfabric();
  fi_info* found = nullptr;
  (void)fi_getinfo(kFabricApi, nullptr, nullptr, 0, nullptr, &found);
  return InfoHandle(found);
}

const void* libfabric_address() {
  fi_strerror(0);
  return ::dlsym(RTLD_DEFAULT, "fi_getinfo");
}

Result<InfoHandle> find_provider(const std::string& name, const std::string& device, bool emulated) {
  const bool by_adapter = is_adapter(name);
  if (by_adapter) {
    if (adapter_names().empty()) return Error{ErrorKind::kNoRoute, fmt::format("provider {}: no adapter", name)};
    const std::string why = device.empty() ? "" : adapter_traits(device).unusable;
    if (!why.empty()) return Error{ErrorKind::kNoRoute, fmt::format("provider {}: {}", name, why)};
  }
  start_libfabric();
  int code = 0;
  std::set<std::string> devices;
  std::vector<std::string> unfit;  // adapters that libfabric offers, and why they are not taken
  bool only_emulated = true;
  for (const std::uint64_t caps : {std::uint64_t{FI_ATOMIC}, std::uint64_t{0}}) {
    const InfoHandle hints = required_hints(name, caps);
    fi_info* found = nullptr;
    code = fi_getinfo(kFabricApi, nullptr, nullptr, 0, hints.get(), &found);
    const InfoHandle infos(found);
    std::vector<const fi_info*> fit;
    std::vector<DeviceTraits> traits;
    // fi_getinfo also returns layered providers that match in part of their name, and opx returns any kind of endpoint
    // that the hints name.
    for (fi_info* info = infos.get(); code == 0 && info != nullptr; info = info->next) {
      const std::string domain = info->domain_attr->name;
      if (name != info->fabric_attr->prov_name) continue;
      if ((kOrder & ~(info->tx_attr->msg_order & info->rx_attr->msg_order)) != 0) continue;
      if (device == domain) return InfoHandle(fi_dupinfo(info));
      if (!devices.insert(domain).second) continue;
      DeviceTraits its = device_traits(*info, by_adapter);
      if (!emulated && is_emulated(*info)) {
        unfit.push_back(fmt::format("adapter {} is emulated, and is taken only if FARSIDE_DEVICE names it", domain));
      } else if (!its.unusable.empty()) {
        unfit.push_back(std::move(its.unusable));
        only_emulated = false;
      } else {
        fit.push_back(info);
        traits.push_back(std::move(its));
      }
    }
    // Of other devices, which share the processors' network stack, the first of the nearest is taken.
    if (device.empty() && !fit.empty())
      return InfoHandle(fi_dupinfo(fit[choose_device(traits, by_adapter ? process_of_node() : 0)]));
    if (!unfit.empty()) {
      return Error{only_emulated ? ErrorKind::kUnsupported : ErrorKind::kNoRoute,
                   fmt::format("provider {}: {}", name, fmt::join(unfit, ", "))};
    }
  }
  if (!devices.empty()) {
    return Error{ErrorKind::kNoRoute,
                 fmt::format("provider {} has no device {}; it has: {}", name, device, fmt::join(devices, ", "))};
  }
  std::string text =
      code != 0
          ? fabric_error(ErrorKind::kNoRoute, fmt::format("fi_getinfo for provider {}", name), code).text
          : fmt::format("provider {} offers no connected endpoint (FI_EP_MSG) with RMA and ordered messages", name);
  for (const std::string& adapter : by_adapter ? adapter_names() : std::vector<std::string>()) {
    if (const std::string why = adapter_traits(adapter).unusable; !why.empty()) text += "; " + why;
  }
  return Error{ErrorKind::kNoRoute, std::move(text)};
}

bool is_adapter(std::string_view provider) { return provider == "verbs"; }

bool is_adapter(const fi_info& info) { return is_adapter(std::string_view(info.fabric_attr->prov_name)); }

std::span<const char* const> preferred_providers() { return kPreferred; }

Candidates candidates(const std::string& asked, const std::string& device) {
  Candidates result;
  if (!asked.empty()) {
    if (Result<InfoHandle> info = find_provider(asked, device)) {
      result.found.push_back({0, std::move(info.value())});
      result.wanted = 1;
    } else {
      const std::string on = device.empty() ? "" : fmt::format(" with FARSIDE_DEVICE='{}'", device);
      result.none =
          Error{ErrorKind::kBadSetting, fmt::format("FARSIDE_PROVIDER='{}'{} cannot be used: {}; libfabric has: {}",
                                                    asked, on, info.error().text, available_providers())};
    }
    return result;
  }
  const std::vector<std::string> adapters = adapter_names();
  const bool names_adapter = std::ranges::find(adapters, device) != adapters.end();
  bool has_device = device.empty() || names_adapter;
  std::string missing;  // reasons, and what devices there are
  for (std::size_t i = 0; i < std::size(kPreferred); ++i) {
    const bool by_adapter = is_adapter(kPreferred[i]);
    Result<InfoHandle> info = find_provider(kPreferred[i], device, false);
    const bool has_adapter = by_adapter && (device.empty() ? !adapters.empty() : names_adapter);
    if (info || (has_adapter && info.error().kind != ErrorKind::kUnsupported)) result.wanted |= Providers{1} << i;
    if (!info) missing += fmt::format("{}{}", missing.empty() ? "" : "; ", info.error().text);
    // The device may be an adapter, of this machine or only of others.
    if (!info && !device.empty() && !by_adapter) {
      info = find_provider(kPreferred[i], {}, false);
      if (info) result.wanted |= Providers{1} << i;
    } else {
      has_device = has_device || info.ok();
    }
    result.reasons.emplace_back(info ? std::string() : info.error().text);
    if (info) {
      result.found.push_back({i, std::move(info.value())});
    } else {
      log(LogLevel::kInfo, "libfabric {} is passed over: {}", kPreferred[i], info.error().text);
    }
  }
  if (!has_device)
    result.unknown_device =
        Error{ErrorKind::kBadSetting,
              fmt::format("FARSIDE_DEVICE='{}' cannot be used: {}; FARSIDE_PROVIDER names another provider", device,
                          missing)};
  if (result.found.empty())
    result.none =
        Error{ErrorKind::kNoRoute, fmt::format("no libfabric provider that farside can use: {}; libfabric has: {}; "
                                               "FARSIDE_PROVIDER names one",
                                               fmt::join(result.reasons, "; "), available_providers())};
  return result;
}

Result<InfoHandle> choose_provider(const std::string& asked, const std::string& device) {
  Candidates all = candidates(asked, device);
  if (all.unknown_device) return *all.unknown_device;
  if (all.none) return *all.none;
  return std::move(all.found.front().info);
}

// ---- the choice of this process ----

Providers ProviderChoice::usable() {
  Candidates& all = look();
  if (std::exchange(opened_, true)) return usable_;
  for (Candidate& each : all.found) {
    if (open(each)) break;
  }
  return usable_;
}

// A provider that cannot be opened is not usable from now on.
Status ProviderChoice::open(Candidate& one) {
  Result<std::unique_ptr<OpenEndpoint>> opened =
      open_endpoint(InfoHandle(fi_dupinfo(one.info.get())), settings_, progress_, statistics_);
  if (!opened) {
    no_longer_usable(one, opened.error());
    return opened.error();
  }
  one.fabric = std::move(opened.value());
  return {};
}

Result<OpenEndpoint*> ProviderChoice::try_best(Providers among) {
  const std::scoped_lock held(mutex_);
  const Providers now = usable();
  const auto found = std::ranges::find_if(all_->found, [&](const Candidate& each) {
    return (each.provider() & among) != 0 && (each.in_use || (each.provider() & now) != 0);
  });
  if (found == all_->found.end()) {
    if (now == 0) return *all_->none;
    const auto index = static_cast<std::size_t>(std::countr_zero(among));
    const bool known = index < all_->reasons.size() && !all_->reasons[index].empty();
    return Error{ErrorKind::kNoRoute, known ? all_->reasons[index] : "the ranks have no libfabric provider in common"};
  }
  if (found->fabric == nullptr) {
    if (Status opened = open(*found); !opened) return opened.error();
  }
  ++found->trials;
  return found->fabric.get();
}

Providers ProviderChoice::use(const OpenEndpoint& tried) {
  const std::scoped_lock held(mutex_);
  Candidate& entry = of(tried);
  --entry.trials;
  for (Candidate& each : all_->found) {
    if (&each != &entry && !each.in_use && each.trials == 0) each.fabric.reset();
  }
  return std::exchange(entry.in_use, true) ? 0 : entry.provider();
}

void ProviderChoice::leave(const OpenEndpoint& tried, const std::string& why) {
  const std::scoped_lock held(mutex_);
  Candidate& entry = of(tried);
  --entry.trials;
  if (why.empty()) return;
  no_longer_usable(entry, {ErrorKind::kNoRoute, why});
  if (!entry.in_use && entry.trials == 0) entry.fabric.reset();
}

// ---- an open provider ----

Result<FabricDomain> FabricDomain::open(InfoHandle info, std::size_t completions) {
  FabricDomain opened;
  opened.info_ = std::move(info);
  opened.by_adapter_ = is_adapter(*opened.info_);
  const auto open_fabric = [&](auto** out) { return fi_fabric(opened.info_->fabric_attr, out, nullptr); };
  if (Status s = open_step("fi_fabric", opened.fabric_, open_fabric); !s) return s.error();
  const auto open_domain = [&](auto** out) { return fi_domain(opened.fabric(), opened.info(), out, nullptr); };
  if (Status s = open_step("fi_domain", opened.domain_, open_domain); !s) return s.error();
  if (opened.by_sockets()) MemoryFault::report_sends_of(reinterpret_cast<const void*>(opened.domain()->fid.ops->close));

  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.size = completions;
  attributes.wait_obj = FI_WAIT_FD;
  const auto open_queue = [&](auto** out) { return fi_cq_open(opened.domain(), &attributes, out, nullptr); };
  if (Status s = open_step("fi_cq_open", opened.queue_, open_queue); !s) return s.error();
  if (const int code = fi_control(&opened.queue()->fid, FI_GETWAIT, &opened.queue_fd_); code != 0)
    return fabric_error(ErrorKind::kNoRoute, "the completion queue's file descriptor", code);
  return opened;
}

bool FabricDomain::advertises_atomics() const {
  if (info_->ep_attr->type != FI_EP_MSG || (info_->caps & FI_ATOMIC) == 0) return false;
  const auto has = [&](fi_op op, std::uint64_t flags) {
    fi_atomic_attr attributes{};
    return fi_query_atomic(domain_.get(), FI_UINT64, op, &attributes, flags) == 0 && attributes.count >= 1;
  };
  return has(FI_SUM, FI_FETCH_ATOMIC) && has(FI_CSWAP, FI_COMPARE_ATOMIC);
}

void Registration::Close::operator()(fid_mr* region) const { fi_close(&region->fid); }

Result<Registration> FabricDomain::register_memory(void* base, std::size_t bytes, std::uint64_t wanted) const {
  const fi_domain_attr& attributes = *info_->domain_attr;
  if (attributes.mr_key_size < sizeof wanted) wanted &= (1ULL << (8 * attributes.mr_key_size)) - 1;
  fid_mr* region = nullptr;
  const int code = fi_mr_reg(domain_.get(), base, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0,
                             wanted, 0, &region, nullptr);
  if (code != 0) {
    return fabric_error(ErrorKind::kNoMemory,
                        fmt::format("registering {} bytes with {} (locked memory limit: ulimit -l)", bytes, provider()),
                        code);
  }
  Registration registration;
  registration.region.reset(region);
  registration.key.base = (attributes.mr_mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<std::uint64_t>(base) : 0;
  registration.key.key = fi_mr_key(region);
  return registration;
}

}  // namespace farside

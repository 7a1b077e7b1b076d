// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/libfabric_on_demand.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <sched.h>
#include <string>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "transport/fabric/provider.hpp"

namespace {

// The signals for which a constructor must not leave a handler.
class KeptHandlers {
 public:
  KeptHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &before_[i]);
  }
  KeptHandlers(const KeptHandlers&) = delete;
  KeptHandlers& operator=(const KeptHandlers&) = delete;
  ~KeptHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

struct Libfabric {
  void* handle = nullptr;
  std::string why_not;  // it is not loaded
};

const Libfabric& libfabric() {
  static const Libfabric loaded = [] {
    const KeptHandlers handlers;
    Libfabric result;
    // With its names for all, as if this library were linked with it.
    result.handle = ::dlopen(FARSIDE_LIBFABRIC, RTLD_NOW | RTLD_GLOBAL);
    const char* const why = result.handle == nullptr ? ::dlerror() : nullptr;
    if (result.handle == nullptr) result.why_not = why != nullptr ? why : FARSIDE_LIBFABRIC " cannot be loaded";
    return result;
  }();
  return loaded;
}

const void* file_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// The function of this name and version (empty: any); null if there is none. As the dynamic linker does, takes one that
// is preloaded in front of libfabric; such libraries have no versions.
void* find(const char* name, const char* version) {
  void* const handle = libfabric().handle;
  if (handle == nullptr) return nullptr;
  void* const own = *version == 0 ? ::dlsym(handle, name) : ::dlvsym(handle, name, version);
  void* const first = ::dlsym(RTLD_DEFAULT, name);
  return own != nullptr && first != nullptr && file_of(first) != file_of(own) ? first : own;
}

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : 0;
}

}  // namespace

namespace farside {

void start_libfabric_between_nodes() {
  // Open MPI, MPICH's Hydra: the numbers of ranks, and of those on this node. Slurm.
  struct Launcher {
    const char* ranks;
    const char* on_node;
  };
  bool several = number_in("SLURM_STEP_NUM_NODES") > 1;
  for (const auto& [ranks, on_node] :
       {Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}, Launcher{"PMI_SIZE", "MPI_LOCALNRANKS"}}) {
    several = several || (number_in(on_node) > 0 && number_in(ranks) > number_in(on_node));
  }
  if (several) start_libfabric();
}

}  // namespace farside

// The functions of libfabric that farside calls, or the inline ones of its headers.
extern "C" {

int fi_getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
               fi_info** info) {
  static auto* const call = reinterpret_cast<decltype(&fi_getinfo)>(find("fi_getinfo", FARSIDE_FI_GETINFO));
  return call != nullptr ? call(version, node, service, flags, hints, info) : -FI_ENOSYS;
}

void fi_freeinfo(fi_info* info) {
  static auto* const call = reinterpret_cast<decltype(&fi_freeinfo)>(find("fi_freeinfo", FARSIDE_FI_FREEINFO));
  if (call != nullptr) call(info);
}

fi_info* fi_dupinfo(const fi_info* info) {
  static auto* const call = reinterpret_cast<decltype(&fi_dupinfo)>(find("fi_dupinfo", FARSIDE_FI_DUPINFO));
  return call != nullptr ? call(info) : nullptr;
}

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  static auto* const call = reinterpret_cast<decltype(&fi_fabric)>(find("fi_fabric", FARSIDE_FI_FABRIC));
  return call != nullptr ? call(attributes, fabric, context) : -FI_ENOSYS;
}

const char* fi_strerror(int code) {
  static auto* const call = reinterpret_cast<decltype(&fi_strerror)>(find("fi_strerror", FARSIDE_FI_STRERROR));
  return call != nullptr ? call(code) : libfabric().why_not.c_str();
}

char* fi_tostr(const void* data, fi_type type) {
  static auto* const call = reinterpret_cast<decltype(&fi_tostr)>(find("fi_tostr", FARSIDE_FI_TOSTR));
  static char unknown[] = "unknown";
  return call != nullptr ? call(data, type) : unknown;
}

}  // extern "C"

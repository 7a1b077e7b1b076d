// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/libfabric_on_demand.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <optional>
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

struct Function {
  const char* name;
  const char* version;  // with which the linker would bind it; empty: any
};
constexpr Function kGetinfo{"fi_getinfo", FARSIDE_FI_GETINFO};
constexpr Function kFreeinfo{"fi_freeinfo", FARSIDE_FI_FREEINFO};
constexpr Function kDupinfo{"fi_dupinfo", FARSIDE_FI_DUPINFO};
constexpr Function kFabric{"fi_fabric", FARSIDE_FI_FABRIC};
constexpr Function kStrerror{"fi_strerror", FARSIDE_FI_STRERROR};
constexpr Function kTostr{"fi_tostr", FARSIDE_FI_TOSTR};

void* find_in(void* library, const Function& function) {
  return *function.version == 0 ? ::dlsym(library, function.name) : ::dlvsym(library, function.name, function.version);
}

struct Libfabric {
  void* handle = nullptr;
  std::string why_not;  // it is not loaded
};

// Loads it, with its names for all, as if this library were linked with it: the one that the process has, or that is
// where it was when farside was built, or that the dynamic linker finds.
void* open_libfabric() {
  constexpr int kHow = RTLD_NOW | RTLD_GLOBAL;
  if (void* const present = ::dlopen(FARSIDE_LIBFABRIC, kHow | RTLD_NOLOAD); present != nullptr) return present;
  if (*FARSIDE_LIBFABRIC_FOLDER != 0) {
    if (void* const there = ::dlopen(FARSIDE_LIBFABRIC_FOLDER "/" FARSIDE_LIBFABRIC, kHow); there != nullptr)
      return there;
  }
  return ::dlopen(FARSIDE_LIBFABRIC, kHow);
}

const Libfabric& libfabric() {
  static const Libfabric loaded = [] {
    const KeptHandlers handlers;
    Libfabric result;
    result.handle = open_libfabric();
    const char* const why = result.handle == nullptr ? ::dlerror() : nullptr;
    if (result.handle == nullptr) result.why_not = why != nullptr ? why : FARSIDE_LIBFABRIC " cannot be loaded";
    for (const Function& each : {kGetinfo, kFreeinfo, kDupinfo, kFabric, kStrerror, kTostr}) {
      if (result.handle == nullptr || find_in(result.handle, each) != nullptr) continue;
      result.why_not = std::string(FARSIDE_LIBFABRIC " has no ") + each.name + '@' + each.version;
      result.handle = nullptr;
    }
    return result;
  }();
  return loaded;
}

const void* file_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// Returns the function; null if libfabric cannot be loaded. As the dynamic linker does, takes one that is preloaded in
// front of libfabric; such libraries have no versions.
void* find(const Function& function) {
  void* const handle = libfabric().handle;
  if (handle == nullptr) return nullptr;
  void* const own = find_in(handle, function);
  void* const first = ::dlsym(RTLD_DEFAULT, function.name);
  return first != nullptr && file_of(first) != file_of(own) ? first : own;
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
  static auto* const call = reinterpret_cast<decltype(&fi_getinfo)>(find(kGetinfo));
  if (call == nullptr) return -FI_ENOSYS;
  // The first call may load providers, and these further libraries.
  static std::atomic_flag begun;
  std::optional<KeptHandlers> handlers;
  if (!begun.test_and_set()) handlers.emplace();
  return call(version, node, service, flags, hints, info);
}

void fi_freeinfo(fi_info* info) {
  static auto* const call = reinterpret_cast<decltype(&fi_freeinfo)>(find(kFreeinfo));
  if (call != nullptr) call(info);
}

fi_info* fi_dupinfo(const fi_info* info) {
  static auto* const call = reinterpret_cast<decltype(&fi_dupinfo)>(find(kDupinfo));
  return call != nullptr ? call(info) : nullptr;
}

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  static auto* const call = reinterpret_cast<decltype(&fi_fabric)>(find(kFabric));
  return call != nullptr ? call(attributes, fabric, context) : -FI_ENOSYS;
}

const char* fi_strerror(int code) {
  static auto* const call = reinterpret_cast<decltype(&fi_strerror)>(find(kStrerror));
  return call != nullptr ? call(code) : libfabric().why_not.c_str();
}

char* fi_tostr(const void* data, fi_type type) {
  static auto* const call = reinterpret_cast<decltype(&fi_tostr)>(find(kTostr));
  static char unknown[] = "unknown";
  return call != nullptr ? call(data, type) : unknown;
}

}  // extern "C"

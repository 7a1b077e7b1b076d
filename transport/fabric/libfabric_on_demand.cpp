// SPDX-License-Identifier: BSD-3-Clause
// libfabric on demand: the interposition library is not linked with libfabric. Its calls of libfabric's functions load
// libfabric when the first of them is made, and find each function by the version with which the linker would bind it
// (dlvsym(3)).
//
// The interposition library is preloaded into many processes that never use the network. libfabric would bring its own
// libraries into all of them; those of Debian for PSM and PSM2 measure the clock for 0.1 s each, bound to processor 0,
// and set handlers of signals. After it is loaded and started here, the handlers are those that were set before.
//
// Thread safety: any thread. A handler that another thread sets while libfabric is loaded is lost. Errors: where
// libfabric cannot be loaded, fi_getinfo and fi_fabric return -FI_ENOSYS, fi_dupinfo returns null, and fi_strerror the
// reason. Cost: 0.2 s at the first call on Debian 12, else an indirect call.
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <optional>
#include <string>
#include <utility>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/provider.hpp"

namespace {

// The signals for which a constructor must not leave a handler.
class KeptHandlers : farside::NotCopied {
 public:
  KeptHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeptHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// All functions are found when it is loaded: later calls come from threads that must not take the dynamic linker's lock
// (base/threads.hpp). If it cannot be loaded, they do what is said above.
struct Libfabric {
  void* handle = nullptr;
  std::string why_not;  // it is not loaded
  decltype(&fi_getinfo) getinfo = [](auto...) { return -FI_ENOSYS; };
  decltype(&fi_freeinfo) freeinfo = [](fi_info*) {};
  decltype(&fi_dupinfo) dupinfo = [](const fi_info*) -> fi_info* { return nullptr; };
  decltype(&fi_fabric) fabric = [](auto...) { return -FI_ENOSYS; };
  decltype(&fi_strerror) strerror = nullptr;
  decltype(&fi_tostr) tostr = [](auto...) -> char* {
    static char unknown[] = "unknown";
    return unknown;
  };
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

const void* file_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// Finds a function by the version with which the linker would bind it; empty: any. As the dynamic linker does, takes
// one that is preloaded in front of libfabric; such libraries have no versions.
template <class Function>
void find(Libfabric& library, Function& function, const char* name, const char* version) {
  void* const own = *version == 0 ? ::dlsym(library.handle, name) : ::dlvsym(library.handle, name, version);
  if (own == nullptr) library.why_not = std::string(FARSIDE_LIBFABRIC " has no ") + name + '@' + version;
  void* const first = ::dlsym(RTLD_DEFAULT, name);
  function = reinterpret_cast<Function>(first != nullptr && file_of(first) != file_of(own) ? first : own);
}

const Libfabric& libfabric() {
  static const Libfabric loaded = [] {
    const KeptHandlers handlers;
    Libfabric result;
    result.handle = open_libfabric();
    if (result.handle == nullptr) {
      const char* const why = ::dlerror();
      result.why_not = why != nullptr ? why : FARSIDE_LIBFABRIC " cannot be loaded";
      return result;
    }
    find(result, result.getinfo, "fi_getinfo", FARSIDE_FI_GETINFO);
    find(result, result.freeinfo, "fi_freeinfo", FARSIDE_FI_FREEINFO);
    find(result, result.dupinfo, "fi_dupinfo", FARSIDE_FI_DUPINFO);
    find(result, result.fabric, "fi_fabric", FARSIDE_FI_FABRIC);
    find(result, result.strerror, "fi_strerror", FARSIDE_FI_STRERROR);
    find(result, result.tostr, "fi_tostr", FARSIDE_FI_TOSTR);
    return result.why_not.empty() ? result : Libfabric{.why_not = result.why_not};
  }();
  return loaded;
}

int number_in(const char* variable) {
  const char* const text = secure_getenv(variable);
  return text != nullptr ? std::atoi(text) : 0;
}

}  // namespace

namespace farside {

void start_libfabric_between_nodes() {
  // Open MPI, MPICH's Hydra: the numbers of ranks, and of those on this node. Slurm.
  bool several = number_in("SLURM_STEP_NUM_NODES") > 1;
  for (const auto& [ranks, on_node] :
       {std::pair("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"), std::pair("PMI_SIZE", "MPI_LOCALNRANKS")}) {
    several = several || (number_in(on_node) > 0 && number_in(ranks) > number_in(on_node));
  }
  if (several) start_libfabric();
}

}  // namespace farside

// The functions of libfabric that farside calls, or the inline ones of its headers.
extern "C" {

int fi_getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
               fi_info** info) {
  // The first call may load providers, and these further libraries.
  static std::atomic_flag begun;
  std::optional<KeptHandlers> handlers;
  if (!begun.test_and_set()) handlers.emplace();
  return libfabric().getinfo(version, node, service, flags, hints, info);
}

void fi_freeinfo(fi_info* info) { libfabric().freeinfo(info); }

fi_info* fi_dupinfo(const fi_info* info) { return libfabric().dupinfo(info); }

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  return libfabric().fabric(attributes, fabric, context);
}

const char* fi_strerror(int code) {
  const auto call = libfabric().strerror;
  return call != nullptr ? call(code) : libfabric().why_not.c_str();
}

char* fi_tostr(const void* data, fi_type type) { return libfabric().tostr(data, type); }

}  // extern "C"

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/runtime.hpp"

#include <cstdlib>
#include <dlfcn.h>

#include "transport/base/log.hpp"

namespace farside::pmpi {
namespace {

template <class Function>
void resolve(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  if (function != nullptr) return;
  log(LogLevel::kError, "no {} behind farside: preload the library, or link it before the MPI library", name);
  std::abort();
}

Runtime load() {
  Runtime loaded{};
#define FARSIDE_CALL(name) resolve(loaded.name, "PMPI_" #name);
#include "pmpi/runtime/calls.def"
  return loaded;
}

}  // namespace

const Runtime& runtime() {
  static const Runtime loaded = load();
  return loaded;
}

}  // namespace farside::pmpi

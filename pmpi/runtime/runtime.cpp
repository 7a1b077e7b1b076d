// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/runtime.hpp"

#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <sstream>
#include <string_view>

#include "transport/base/log.hpp"

namespace farside::pmpi {
namespace {

template <class Function>
void resolve(Function& function, const char* name) {
  function = reinterpret_cast<Function>(find_behind(name));
}

Runtime load() {
  Runtime loaded{};
#define FARSIDE_CALL(name) resolve(loaded.name, "PMPI_" #name);
#include "pmpi/runtime/calls.def"
  return loaded;
}

}  // namespace

// MPI_Get_library_version says "Open MPI v4.1.4, package: Debian OpenMPI, ..." or "MPICH Version:\t4.0.2\nMPICH ...".
std::string runtime_name() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  if (PMPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "an unknown MPI";
  std::istringstream words(std::string(text.data(), std::string_view(text.data()).find_first_of(",\n")));
  std::string name;
  for (std::string word; words >> word;) {
    if (word == "Version:") continue;
    const bool number = word.size() > 1 && word[0] == 'v' && word[1] >= '0' && word[1] <= '9';
    name += (name.empty() ? "" : " ") + (number ? word.substr(1) : word);
  }
  return name;
}

void* find_behind(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found != nullptr) return found;
  log(LogLevel::kError, "no {} behind farside: preload the library, or link it before the MPI library", name);
  std::abort();
}

const Runtime& runtime() {
  static const Runtime loaded = load();
  return loaded;
}

}  // namespace farside::pmpi

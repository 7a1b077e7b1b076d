// SPDX-License-Identifier: BSD-3-Clause
// All libraries that the dynamic loader would load with a program or a library, found as ld.so(8) finds them,
// without running anything of it.
#pragma once

#include <string>
#include <vector>

namespace farside::tools {

struct LoadedLibrary {
  std::string name;       // as it is asked for: libmpi.so.40
  std::string path;       // absolute; empty: not found
  std::string needed_by;  // the path of the first that asks for it
};

// Of `path` and of all that it needs, in the loader's order (breadth first). Empty if `path` is no dynamic
// ELF file of this kind of machine.
std::vector<LoadedLibrary> loaded_libraries(const std::string& path);

// What /etc/ld.so.cache (or another file of its kind) has for `name`; several where there are.
std::vector<std::string> in_loader_cache(const std::string& name,
                                         const std::string& cache = "/etc/ld.so.cache");

}  // namespace farside::tools

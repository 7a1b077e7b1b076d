// SPDX-License-Identifier: BSD-3-Clause
// Finds all libraries that the dynamic loader would load with a program or a library, by the rules of ld.so(8),
// without running any of it.
#pragma once

#include <string>
#include <vector>

namespace farside::tools {

struct LoadedLibrary {
  std::string name;       // as DT_NEEDED names it: libmpi.so.40
  std::string path;       // absolute; empty: not found
  std::string needed_by;  // the path of the first object that needs it
};

// Returns the libraries of `path` and of all that it needs, in the loader's order (breadth first). Empty if `path` is
// no dynamic ELF file for this kind of machine.
std::vector<LoadedLibrary> loaded_libraries(const std::string& path);

// Returns the paths that /etc/ld.so.cache (or another file of that format) has for `name`.
std::vector<std::string> in_loader_cache(const std::string& name, const std::string& cache = "/etc/ld.so.cache");

}  // namespace farside::tools

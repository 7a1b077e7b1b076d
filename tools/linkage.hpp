// SPDX-License-Identifier: BSD-3-Clause
// Which MPI runtime a program would load: looked up in the program, not asked of the user.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/library_search.hpp"
#include "transport/base/result.hpp"

namespace farside::tools {

struct MpiLibrary {
  std::string runtime;  // openmpi, mpich
  std::string name;     // as it is asked for: libmpi.so.40
  std::string path;     // empty: not found
};

struct Linkage {
  std::string program;  // the path of what was asked about
  std::string
      examined;  // the file whose libraries these are: the program, its interpreter, or Python's mpi4py
  std::vector<MpiLibrary> mpi;  // none, one, or (ambiguous) several
  std::string farside;          // the runtime whose libfarside-RUNTIME.so is linked in; empty if none is
};

// Of the program `word` as a launcher would start it: a path, or a name in PATH. Follows #! to interpreters;
// asks a Python interpreter (and runs it for that) where its mpi4py is. The error says what cannot be
// followed and what to do.
Result<Linkage> find_linkage(const std::string& word);

// The MPI libraries among those.
std::vector<MpiLibrary> mpi_libraries(const std::vector<LoadedLibrary>& loaded);

// The MPI library that `library`, one of farside's, is linked to; its runtime is empty if there is none.
MpiLibrary mpi_behind(const std::string& library);

// Where PATH has `program`; empty if nowhere.
std::string in_path(const std::string& program);

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// Finds the MPI runtime that a program would load, by examining the program.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "transport/base/result.hpp"

namespace farside::tools {

// Returns an error of the command with this text.
template <class... Args>
Error cannot(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorKind::kOther, fmt::format(format, std::forward<Args>(args)...)};
}

struct LoadedLibrary {
  std::string name;  // as the file that needs it names it: libmpi.so.40
  std::string path;  // absolute; empty: not found
};

// Returns the libraries that the dynamic loader would load with a program or a library, in its order, as ldd(1) says.
// Empty if the file is linked statically or is no program for this machine.
std::vector<LoadedLibrary> loaded_libraries(const std::string& file);

// Whether a library, by its name or path, is a runtime that replaces malloc: a sanitizer's, which ends a program in
// which another library comes before it, or an allocator.
bool comes_first(const std::string& library);

struct MpiLibrary {
  std::string runtime;  // openmpi, mpich
  std::string name;     // libmpi.so.40
  std::string path;     // empty: not found
};

struct Linkage {
  std::string program;          // the path of the program in question
  std::string examined;         // the file whose libraries these are: the program, its interpreter, or Python's mpi4py
  std::vector<MpiLibrary> mpi;  // none, one, or (ambiguous) several
  std::string first;            // the library among them that comes_first(); empty if there is none
  std::string farside;          // the runtime whose libfarside-RUNTIME.so is linked in; empty if none is
};

// Examines the program `word` as a launcher would start it: a path, or a name in PATH. Follows #! to interpreters,
// and runs a Python interpreter to ask where its mpi4py is. The error says what could not be followed, and a remedy.
Result<Linkage> find_linkage(const std::string& word);

// Returns the MPI libraries among `libraries`.
std::vector<MpiLibrary> mpi_libraries(const std::vector<LoadedLibrary>& loaded);

// Returns the MPI library to which `library`, one of farside's, is linked. Its runtime is empty if there is none:
// libfarside-mpich.so takes what the program has loaded.
MpiLibrary mpi_behind(const std::string& library);

// Whether the path is a file that this user may execute.
bool runnable(const std::filesystem::path& path);

// Returns the path of `program` in PATH; empty if it is not there.
std::string in_path(const std::string& program);

}  // namespace farside::tools

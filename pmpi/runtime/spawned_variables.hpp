// SPDX-License-Identifier: BSD-3-Clause
// The environment variables that ranks need which MPI_Comm_spawn starts: LD_PRELOAD, if it names this library, and the
// settings of this process. Up to Open MPI 4 and in MPICH they have what mpirun was told to set (-x, -genv); from Open
// MPI 5 on, they have it only from the info key PMIX_ENVAR, a list of NAME=VALUE with a newline between two of them.
// (The variables that mpirun itself has, they have in either case.) Thread safety: any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace farside::pmpi {

// What the started ranks need of this process's environment, as names and values.
std::vector<std::pair<std::string, std::string>> variables_for_spawned();

// A list in the form of the key, and the names for which there was no room.
struct VariableList {
  std::string text;
  std::vector<std::string> left_out;
};
// Returns `given`, a list of the program's, with those of `variables` that neither it nor `other`, another such list,
// sets. The text is no longer than `limit` characters, except by `given` alone.
VariableList add_variables(std::string_view given, std::string_view other,
                           const std::vector<std::pair<std::string, std::string>>& variables, std::size_t limit);

}  // namespace farside::pmpi

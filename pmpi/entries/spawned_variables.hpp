// SPDX-License-Identifier: BSD-3-Clause
// The environment variables that spawned ranks (MPI_Comm_spawn) need: LD_PRELOAD, if it names this library, and the
// settings of this process. Up to Open MPI 4 and in MPICH, spawned ranks get the variables that the options of mpirun
// set (-x, -genv). From Open MPI 5 on, spawned ranks get these variables only by the info key PMIX_ENVAR, a list of
// NAME=VALUE separated by newlines; a program that gives the key itself names the variables there. (In either case,
// spawned ranks inherit the environment of mpirun itself.) Thread safety: any thread.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace farside::pmpi {

// The variables of this process that spawned ranks need, as names and values.
std::vector<std::pair<std::string, std::string>> variables_for_spawned();

// A list in the form of the key, of at most `limit` characters, and the names for which there was no room.
struct VariableList {
  std::string text;
  std::string left_out;
};
VariableList list_for_spawned(const std::vector<std::pair<std::string, std::string>>& variables, std::size_t limit);

}  // namespace farside::pmpi

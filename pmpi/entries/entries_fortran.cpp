// SPDX-License-Identifier: BSD-3-Clause
// Entry points of Fortran. Fortran's calls reach those of C, except MPI_Win_get_attr: it returns an integer where C
// returns a pointer, so both runtimes read the handle without the C call. (The MPI ABI is C's.)
#include <mpi.h>

#if defined(MPICH_VERSION) || defined(OPEN_MPI)
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/window.hpp"

namespace farside::pmpi {
namespace {

// Finds a predefined attribute of a farside window in Fortran's form: an integer that can hold an address.
bool find_attribute(MPI_Win win, int keyval, MPI_Aint& value) {
  Window* window = library().windows.look_up(win).window;
  const std::optional<void*> attribute = window != nullptr ? window->predefined_attribute(keyval) : std::nullopt;
  if (!attribute) return false;
  value = keyval == MPI_WIN_BASE   ? reinterpret_cast<MPI_Aint>(*attribute)
          : keyval == MPI_WIN_SIZE ? *static_cast<MPI_Aint*>(*attribute)
                                   : *static_cast<int*>(*attribute);
  return true;
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

#if defined(MPICH_VERSION)
// MPICH's MPIR_Attr_type: the type to which `value` points.
constexpr int kAddressInteger = 1;

extern "C" [[gnu::visibility("default")]] int MPII_Win_get_attr(MPI_Win win, int keyval, void* value, int* flag,
                                                                int type) {
  // Each predefined key of Fortran is the even number after the key of C.
  const int key = keyval % 2 == 0 ? keyval - 1 : keyval;
  if (type == kAddressInteger && find_attribute(win, key, *static_cast<MPI_Aint*>(value))) {
    *flag = 1;
    return MPI_SUCCESS;
  }
  static auto* const original = reinterpret_cast<decltype(&MPII_Win_get_attr)>(find_behind("MPII_Win_get_attr"));
  return original(win, keyval, value, flag, type);
}
#elif defined(OPEN_MPI)
using GetAttribute = void(MPI_Fint* object, MPI_Fint* keyval, MPI_Aint* value, MPI_Fint* flag, MPI_Fint* error);

extern "C" [[gnu::visibility("default")]] void ompi_win_get_attr_f(MPI_Fint* win, MPI_Fint* keyval, MPI_Aint* value,
                                                                   MPI_Fint* flag, MPI_Fint* error) {
  // Delete callbacks may query a window that is being freed. The runtime's handle has no predefined attributes then.
  if (find_attribute(runtime().Win_f2c(*win), *keyval, *value)) {
    *flag = 1;  // .TRUE. for any compiler: those that write -1 test the lowest bit
    *error = MPI_SUCCESS;
    return;
  }
  static auto* const original = reinterpret_cast<GetAttribute*>(find_behind("ompi_win_get_attr_f"));
  original(win, keyval, value, flag, error);
}
extern "C" [[gnu::visibility("hidden"), gnu::alias("ompi_win_get_attr_f")]] GetAttribute farside_win_get_attr;
// The names that compilers give the function (mpif.h and use mpi); mpi_f08 calls the one above. Tools get the first
// names, and call the second ones or C's function.
#define FARSIDE_FORTRAN_NAME(name)                                                                                     \
  extern "C" [[gnu::visibility("default"), gnu::alias("ompi_win_get_attr_f")]] GetAttribute p##name;                   \
  extern "C" [[gnu::visibility("default")]] void name(MPI_Fint* win, MPI_Fint* keyval, MPI_Aint* value,                \
                                                      MPI_Fint* flag, MPI_Fint* error) {                               \
    static void* const tool = find_tool(#name, "p" #name, {"p" #name, "PMPI_Win_get_attr"});                           \
    (tool != nullptr ? reinterpret_cast<GetAttribute*>(tool) : farside_win_get_attr)(win, keyval, value, flag, error); \
  }
FARSIDE_FORTRAN_NAME(mpi_win_get_attr)
FARSIDE_FORTRAN_NAME(mpi_win_get_attr_)
FARSIDE_FORTRAN_NAME(mpi_win_get_attr__)
#endif
#endif

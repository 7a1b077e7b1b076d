// SPDX-License-Identifier: BSD-3-Clause
// A tool for MPI: a library that counts the calls that it gets and passes them on to PMPI_X, as profilers do. The
// program asks for the counts (programs/profiled.cpp); with TOOL_PRINTS in the environment, each rank prints them.
//
// TOOL_CALLS: the file that lists its calls; without it, these are all calls that farside interposes.
// TOOL_BY_DLSYM: it finds the functions behind it by dlsym(3), as some tools do.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

#include <mpi.h>

#ifndef TOOL_CALLS
#define TOOL_CALLS "pmpi/runtime/calls.def"
#endif

namespace {

enum Call : int {
#define FARSIDE_CALL(name) k##name,
#include TOOL_CALLS
  kCalls
};
constexpr std::array<const char*, kCalls> kNames = {
#define FARSIDE_CALL(name) "PMPI_" #name,
#include TOOL_CALLS
};
std::array<std::atomic<long>, kCalls> counts;

template <Call kCall, class Function>
struct Counted;
template <Call kCall, class... Args>
struct Counted<kCall, int(Args...)> {
  template <int (*kNext)(Args...)>
  static int call(Args... args) {
    ++counts[kCall];
#ifdef TOOL_BY_DLSYM
    static auto* const next = reinterpret_cast<int (*)(Args...)>(dlsym(RTLD_NEXT, kNames[kCall]));
    return next(args...);
#else
    return kNext(args...);
#endif
  }
};

[[gnu::destructor]] void print() {
  for (int i = 0; i < kCalls && std::getenv("TOOL_PRINTS") != nullptr; ++i) {
    if (counts[i] != 0) std::fprintf(stderr, "tool: %s %ld\n", kNames[i] + 1, counts[i].load());
  }
}

}  // namespace

// Passes the name and the count of each call of the tool to `each`.
extern "C" void tool_each(void (*each)(const char* name, long count)) {
  for (int i = 0; i < kCalls; ++i) each(kNames[i] + 1, counts[i]);
}

// MPI_X is a jump to Counted::call of its type. (A function in C++ would have to repeat the parameters of the call.)
#if defined(__x86_64__)
#define JUMP(to) "jmp *" to "(%rip)\n"
#else
#define JUMP(to) "adrp x16, " to "\n ldr x16, [x16, :lo12:" to "]\n br x16\n"
#endif
#define FARSIDE_CALL(name)                                                                     \
  extern "C" {                                                                                 \
  [[gnu::visibility("hidden")]] constinit decltype(&MPI_##name) tool_##name =                  \
      &Counted<k##name, decltype(MPI_##name)>::call<&PMPI_##name>;                             \
  }                                                                                            \
  asm(".pushsection .text\n .globl MPI_" #name "\n .type MPI_" #name ", %function\nMPI_" #name \
      ":\n" JUMP("tool_" #name) ".popsection");
#include TOOL_CALLS

#ifndef TOOL_BY_DLSYM
// Fortran's bindings call PMPI_X in Open MPI, and either name in MPICH, so tools have bindings of their own.
extern "C" void mpi_put_(void* origin, MPI_Fint* origin_count, MPI_Fint* origin_type, MPI_Fint* rank,
                         MPI_Aint* displacement, MPI_Fint* target_count, MPI_Fint* target_type, MPI_Fint* win,
                         MPI_Fint* error) {
  ++counts[kPut];
  *error = PMPI_Put(origin, *origin_count, PMPI_Type_f2c(*origin_type), *rank, *displacement, *target_count,
                    PMPI_Type_f2c(*target_type), PMPI_Win_f2c(*win));
}
extern "C" [[gnu::weak]] void pmpi_win_get_attr_(MPI_Fint*, MPI_Fint*, MPI_Aint*, MPI_Fint*, MPI_Fint*);
extern "C" void mpi_win_get_attr_(MPI_Fint* win, MPI_Fint* key, MPI_Aint* value, MPI_Fint* flag, MPI_Fint* error) {
  ++counts[kWin_get_attr];
  pmpi_win_get_attr_(win, key, value, flag, error);
}
#endif

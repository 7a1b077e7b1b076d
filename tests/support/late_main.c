// SPDX-License-Identifier: BSD-3-Clause
// late-main LIBRARY: calls run() of a library that is opened for itself alone, as Python opens mpi4py (late_user.c).
// The MPI library, which that one needs, is in no search order of the process.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* const user = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (user == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
  int (*run)(void);
  *(void**)&run = dlsym(user, "run");
  return run();
}

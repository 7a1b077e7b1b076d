// SPDX-License-Identifier: BSD-3-Clause
// late-main LIBRARY: opens a library (late_user.c) with RTLD_LOCAL, as Python opens mpi4py, calls its run(), and closes
// it. The MPI library, which late_user.c needs, is then not in the global search order of the process.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* const user = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (user == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
  int (*run)(void);
  *(void**)&run = dlsym(user, "run");
  const int code = run();
  dlclose(user);
  return code;
}

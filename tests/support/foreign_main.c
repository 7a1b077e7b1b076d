// SPDX-License-Identifier: BSD-3-Clause
// foreign-main LIBRARY: a library (foreign_user.c) uses its own copy of UCX, which is opened with RTLD_LOCAL. Its calls
// must reach that copy.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* const user = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (user == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
  unsigned (*progress)(void);
  unsigned (*progress_behind)(void);
  *(void**)&progress = dlsym(user, "foreign_progress");
  *(void**)&progress_behind = dlsym(user, "foreign_progress_behind");
  return progress() == 4711 && progress_behind() == 4712 ? 0 : 1;
}

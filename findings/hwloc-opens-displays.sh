#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that a job of one node in shared memory connects to nothing but its own processes, whatever
# graphics the node has, and that an unset DISPLAY says that there is none for it.
# True of Open MPI 4.1.4 with hwloc 2.9.0, as Debian 12 installs them: the plugin `gl`, which asks for NVIDIA displays
# (topology-gl.c: HWLOC_GL_SERVER_MAX), makes mpirun and, in MPI_Init, each rank try the X servers :0 to :9, although
# DISPLAY is not set. HWLOC_COMPONENTS=-gl prevents this.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
openmpi
unpack libhwloc-plugins=2.9.0-1 libxnvctrl0=525.85.05-3~deb12u1 libx11-6=2:1.8.4-2+deb12u2 libxext6=2:1.3.4-1+b1 \
  libxcb1=1.15-1 libxau6=1:1.0.9-1 libxdmcp6=1:1.1.2-3 libbsd0=0.11.7-2 libmd0=1.0.4-2
export HWLOC_PLUGINS_PATH=$libraries/hwloc
unset DISPLAY
cat >"$scratch/watch.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
int connect(int fd, const struct sockaddr* address, socklen_t bytes) {
  const struct sockaddr_un* to = (const void*)address;
  const char* path = to->sun_path + (to->sun_path[0] == 0);  // an abstract name follows a zero
  if (to->sun_family == AF_UNIX && strncmp(path, "/tmp/.X11-unix/X", 16) == 0)
    fprintf(stderr, "%s :%s\n", program_invocation_short_name, path + 16);
  return ((int (*)(int, const struct sockaddr*, socklen_t))dlsym(RTLD_NEXT, "connect"))(fd, address, bytes);
}
C
cat >"$scratch/rank.c" <<'C'
#include <mpi.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Finalize();
}
C
cc -shared -fPIC -o "$scratch/watch.so" "$scratch/watch.c" -ldl
compile "$scratch/rank.c" "$scratch/rank"
tries() { LD_PRELOAD=$scratch/watch.so run 1 "$scratch/rank" 2>&1 >/dev/null | sort -u | tr '\n' ' '; }
{
  echo "as installed: $(tries)"
  echo "without gl: $(HWLOC_COMPONENTS=-gl tries)"
} | expect 'as installed: orterun :0 orterun :1 orterun :2 orterun :3 orterun :4 orterun :5 orterun :6 orterun :7 orterun :8 orterun :9 rank :0 rank :1 rank :2 rank :3 rank :4 rank :5 rank :6 rank :7 rank :8 rank :9 
without gl: '

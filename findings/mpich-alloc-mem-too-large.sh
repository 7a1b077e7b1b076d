#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that MPI_Alloc_mem of more memory than there is returns MPI_ERR_NO_MEM (MPI 4.0, section 9.2).
# True of MPICH 4.0.2: it returns MPI_SUCCESS, and the address is a small number (0x10). A test of the address against
# null does not help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
mpich
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
int main(int argc, char** argv) {
  void* memory = NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const int code = MPI_Alloc_mem((MPI_Aint)1 << 60, MPI_INFO_NULL, &memory);
  printf("%s, address %#lx\n", code == MPI_SUCCESS ? "MPI_SUCCESS" : "an error", (unsigned long)(uintptr_t)memory);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 1 "$scratch/program" | expect 'MPI_SUCCESS, address 0x10'

/* SPDX-License-Identifier: BSD-3-Clause
   Built twice: as a library with the name of an MPI library, and as a program that needs it and does not say where it
   is. */
#ifdef LIBRARY
__attribute__((visibility("default"))) int PMPI_Init(void);
int PMPI_Init(void) { return 0; }
#else
int PMPI_Init(void);
int main(void) { return PMPI_Init(); }
#endif

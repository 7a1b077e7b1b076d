/* SPDX-License-Identifier: BSD-3-Clause
   A program that is linked to Open MPI and to MPICH, as one is whose libraries were built for different runtimes. */
int MPI_Finalize(void);
int main(int argc, char** argv) {
  (void)argv;
  return argc > 1 ? MPI_Finalize() : 0;
}

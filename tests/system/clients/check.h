// SPDX-License-Identifier: BSD-3-Clause
// What the client programs in C share: a check that says which rank saw what, and ends them all; and where a rank is,
// told when time runs out (TEST_SECONDS, as in tests/programs/check.hpp).
#pragma once

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

static int check_rank = -1;
static const char* check_section = "start";

#define CHECK_EQ(got, wanted)                                                                                \
  do {                                                                                                       \
    const double check_got = (double)(got), check_wanted = (double)(wanted);                                 \
    if (check_got != check_wanted) {                                                                         \
      fprintf(stderr, "%s:%d: rank %d, in \"%s\": %s is %.17g, not %.17g\n", __FILE__, __LINE__, check_rank, \
              check_section, #got, check_got, check_wanted);                                                 \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                          \
    }                                                                                                        \
  } while (0)

static void check_out_of_time(int signal_number) {
  (void)signal_number;
  const char digits[] = {'r', 'a', 'n', 'k', ' ', (char)('0' + check_rank % 10), ':', ' '};
  (void)!write(STDERR_FILENO, digits, sizeof digits);
  (void)!write(STDERR_FILENO, "out of time in ", 15);
  (void)!write(STDERR_FILENO, check_section, strlen(check_section));
  (void)!write(STDERR_FILENO, "\n", 1);
  _exit(124);
}

// After MPI_Init.
static inline void check_start(void) {
  MPI_Comm_rank(MPI_COMM_WORLD, &check_rank);
  const char* seconds = getenv("TEST_SECONDS");
  if (seconds != NULL) {
    signal(SIGALRM, check_out_of_time);
    alarm((unsigned)atoi(seconds));
  }
}

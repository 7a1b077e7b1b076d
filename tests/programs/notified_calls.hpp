// SPDX-License-Identifier: BSD-3-Clause
// The calls of notified access, which only farside has. Without it they are null.
#pragma once

#include <mpi.h>

#define FROM const void *from, int from_count, MPI_Datatype from_type
#define INTO void *into, int into_count, MPI_Datatype into_type
#define AT int target, MPI_Aint displacement, int count, MPI_Datatype type
#define OF int counter, MPI_Win window
extern "C" {
[[gnu::weak]] int MPIX_Put_notify(FROM, AT, OF);
[[gnu::weak]] int MPIX_Get_notify(INTO, AT, OF);
[[gnu::weak]] int MPIX_Accumulate_notify(FROM, AT, MPI_Op op, OF);
[[gnu::weak]] int MPIX_Get_accumulate_notify(FROM, INTO, AT, MPI_Op op, OF);
[[gnu::weak]] int MPIX_Rput_notify(FROM, AT, OF, MPI_Request* request);
[[gnu::weak]] int MPIX_Rget_notify(INTO, AT, OF, MPI_Request* request);
[[gnu::weak]] int MPIX_Raccumulate_notify(FROM, AT, MPI_Op op, OF, MPI_Request* request);
[[gnu::weak]] int MPIX_Rget_accumulate_notify(FROM, INTO, AT, MPI_Op op, OF, MPI_Request* request);
[[gnu::weak]] int MPIX_Win_set_num_notify(MPI_Win window, MPI_Info info, int counters);
[[gnu::weak]] int MPIX_Win_get_num_notify(MPI_Win window, int rank, int* counters);
[[gnu::weak]] int MPIX_Win_get_notify_value(MPI_Win window, int counter, MPI_Count* value);
[[gnu::weak]] int MPIX_Win_reset_notify_value(MPI_Win window, int counter, MPI_Count* value);
[[gnu::weak]] int MPIX_Win_test_notify(MPI_Win window, int counter, MPI_Count threshold, int* flag);
[[gnu::weak]] int MPIX_Win_wait_notify(MPI_Win window, int counter, MPI_Count threshold);
}
#undef FROM
#undef INTO
#undef AT
#undef OF

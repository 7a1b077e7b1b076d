! SPDX-License-Identifier: BSD-3-Clause
! Mistakes from Fortran: returned as error codes, or told once to an error handler that is a Fortran subroutine. The window
! works afterwards.
module told
  implicit none
  integer :: calls = 0
  integer :: error_class = 0
end module told

subroutine handler(window, code)
  use mpi
  use told
  implicit none
  integer :: window, code, ierror
  calls = calls + 1
  call MPI_Error_class(code, error_class, ierror)
end subroutine handler

program fortran_handler
  use mpi
  use told
  implicit none
  external :: handler
  integer :: rank, ranks, next, window, errhandler, ierror, class_returned
  integer, parameter :: ints = 8
  ! The fences change it, which gfortran 14 does not expect of other variables (MPI 4.0 section 19.1.17).
  integer, volatile :: memory(ints)
  integer :: value
  integer(kind=MPI_ADDRESS_KIND) :: bytes, at

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  next = mod(rank + 1, ranks)
  memory = 0
  value = 4711
  bytes = 4 * ints
  call MPI_Win_create(memory, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, window, ierror)

  ! Returned.
  call MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN, ierror)
  call MPI_Win_complete(window, ierror)
  call MPI_Error_class(ierror, class_returned, ierror)
  call check(class_returned == MPI_ERR_RMA_SYNC, "MPI_Win_complete did not return MPI_ERR_RMA_SYNC")

  ! Told.
  call MPI_Win_create_errhandler(handler, errhandler, ierror)
  call MPI_Win_set_errhandler(window, errhandler, ierror)
  call MPI_Win_unlock(next, window, ierror)
  call check(calls == 1 .and. error_class == MPI_ERR_RMA_SYNC, "the handler was not told of the unlock")
  call MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window, ierror)
  at = ints
  call MPI_Put(value, 1, MPI_INTEGER, next, at, 1, MPI_INTEGER, window, ierror)
  call check(calls == 2 .and. error_class == MPI_ERR_RMA_RANGE, "the handler was not told of the put")
  call MPI_Win_unlock(next, window, ierror)
  call check(calls == 2, "the handler was told of what was right")

  call MPI_Win_fence(0, window, ierror)
  at = 2
  call MPI_Put(value, 1, MPI_INTEGER, next, at, 1, MPI_INTEGER, window, ierror)
  call MPI_Win_fence(MPI_MODE_NOSUCCEED, window, ierror)
  call check(memory(3) == value, "the put did not arrive")
  call MPI_Errhandler_free(errhandler, ierror)
  call MPI_Win_free(window, ierror)
  call MPI_Finalize(ierror)

contains

  subroutine check(condition, text)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: text
    integer :: ignored
    if (condition) return
    print *, "rank ", rank, ": ", text
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine check
end program fortran_handler

! SPDX-License-Identifier: BSD-3-Clause
! halo.c in Fortran.
!   mpicc -c PREFIX/share/farside/farside_f.c -I PREFIX/include
!   mpifort PREFIX/share/farside/farside.f90 halo.f90 farside_f.o -o halo
program halo_exchange
  use, intrinsic :: iso_c_binding
  use mpi
  use farside
  implicit none
  integer, parameter :: cells_here = 100, steps = 200, left_side = 0, right_side = 1
  integer(c_int64_t), asynchronous :: cells(cells_here)
  integer(c_int64_t), allocatable :: expected(:)
  integer(c_int64_t), pointer, asynchronous :: halo(:)
  integer :: rank, ranks, left, right, win, ierror, step, set, i
  integer(MPI_ADDRESS_KIND) :: at
  type(c_ptr) :: memory

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  left = mod(rank + ranks - 1, ranks)
  right = mod(rank + 1, ranks)
  cells = [(int(rank * cells_here + i, c_int64_t), i = 0, cells_here - 1)]

  ! A halo of a cell on each side, twice, because a neighbour may be a step ahead; and a counter for each side.
  at = 32
  call MPI_Win_allocate(at, 8, MPI_INFO_NULL, MPI_COMM_WORLD, memory, win, ierror)
  call c_f_pointer(memory, halo, [4])
  call MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 2)
  call MPI_Win_lock_all(0, win, ierror)
  do step = 1, steps
    set = 2 * mod(step, 2)
    at = set + right_side
    call MPIX_Put_notify(cells(1:1), 1, MPI_INTEGER8, left, at, 1, MPI_INTEGER8, right_side, win)
    at = set + left_side
    call MPIX_Put_notify(cells(cells_here:), 1, MPI_INTEGER8, right, at, 1, MPI_INTEGER8, left_side, win)
    call MPIX_Win_wait_notify(win, left_side, int(step, c_long_long))
    call MPIX_Win_wait_notify(win, right_side, int(step, c_long_long))
    call MPI_Win_flush_local_all(win, ierror) ! the cells may change
    call step_over(cells, halo(1 + set + left_side), halo(1 + set + right_side))
  end do
  call MPI_Win_unlock_all(win, ierror)
  call MPI_Win_free(win, ierror)

  ! The same on one rank.
  expected = [(int(i, c_int64_t), i = 0, ranks * cells_here - 1)]
  do step = 1, steps
    call step_over(expected, expected(size(expected)), expected(1))
  end do
  if (any(cells /= expected(rank * cells_here + 1:(rank + 1) * cells_here))) then
    print *, 'rank ', rank, ' has wrong cells'
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  end if
  call MPI_Finalize(ierror)

contains

  subroutine step_over(values, first, last)
    integer(c_int64_t), intent(inout) :: values(:)
    integer(c_int64_t), value :: first, last
    values = mod([first, values(:size(values) - 1)] + 2 * values + [values(2:), last], 1000003_c_int64_t)
  end subroutine
end program

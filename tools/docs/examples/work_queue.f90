! SPDX-License-Identifier: BSD-3-Clause
! work_queue.c in Fortran; halo.f90 says how it is built.
program producers_and_consumer
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use farside
  implicit none
  integer, parameter :: items = 500, slots = 8, freed = 0
  integer(c_int64_t), asynchronous :: item(1)
  integer(c_int64_t), pointer, asynchronous :: memory(:)
  integer :: rank, ranks, owners, i, from
  integer(MPI_ADDRESS_KIND) :: at
  type(MPI_Win) :: win
  type(c_ptr) :: base

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  owners = merge(ranks, 1, rank == 0)
  at = 8 * slots * owners
  call MPI_Win_allocate(at, 8, MPI_INFO_NULL, MPI_COMM_WORLD, base, win)
  call c_f_pointer(base, memory, [slots * owners])
  call MPIX_Win_set_num_notify(win%MPI_VAL, MPI_INFO_NULL%MPI_VAL, owners)
  call MPI_Win_lock_all(0, win)
  do i = 0, items - 1
    if (rank /= 0) then
      item = rank * 1000000 + i
      if (i >= slots) call MPIX_Win_wait_notify(win%MPI_VAL, freed, int(i - slots + 1, c_long_long))
      at = rank * slots + mod(i, slots)
      call MPIX_Put_notify(item, 1, MPI_INTEGER8%MPI_VAL, 0, at, 1, MPI_INTEGER8%MPI_VAL, rank, win%MPI_VAL)
      call MPI_Win_flush_local(0, win)
      cycle
    end if
    do from = 1, ranks - 1
      call MPIX_Win_wait_notify(win%MPI_VAL, from, int(i + 1, c_long_long))
      if (memory(1 + from * slots + mod(i, slots)) /= from * 1000000 + i) then
        print *, 'rank 0 has got a wrong item'
        call MPI_Abort(MPI_COMM_WORLD, 1)
      end if
      at = 0
      call MPIX_Put_notify(item, 0, MPI_INTEGER8%MPI_VAL, from, at, 0, MPI_INTEGER8%MPI_VAL, freed, win%MPI_VAL)
    end do
  end do
  call MPI_Win_unlock_all(win)
  call MPI_Win_free(win)
  call MPI_Finalize()
end program

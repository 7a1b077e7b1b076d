! SPDX-License-Identifier: BSD-3-Clause
! Notified access from Fortran: the functions of farside.h, by way of farside_f.c. Handles are integers: of mpi_f08,
! win%MPI_VAL. Buffers are arrays; ierror may be absent.
!   mpicc -c farside_f.c && mpifort farside.f90 program.f90 farside_f.o
module farside
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    subroutine MPIX_Win_set_num_notify(win, info, number, ierror) bind(c, name='farside_set_num_notify_f')
      import
      integer(c_int), value :: win, info, number
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Win_get_num_notify(win, target, number, ierror) bind(c, name='farside_get_num_notify_f')
      import
      integer(c_int), value :: win, target
      integer(c_int), intent(out) :: number
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Win_get_notify_value(win, notify, value, ierror) bind(c, name='farside_get_notify_value_f')
      import
      integer(c_int), value :: win, notify
      integer(c_long_long), intent(out) :: value
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Win_reset_notify_value(win, notify, value, ierror) bind(c, name='farside_reset_notify_value_f')
      import
      integer(c_int), value :: win, notify
      integer(c_long_long), intent(out) :: value
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Win_wait_notify(win, notify, threshold, ierror) bind(c, name='farside_wait_notify_f')
      import
      integer(c_int), value :: win, notify
      integer(c_long_long), value :: threshold
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Win_test_notify(win, notify, threshold, flag, ierror) bind(c, name='farside_test_notify_f')
      import
      integer(c_int), value :: win, notify
      integer(c_long_long), value :: threshold
      integer(c_int), intent(out) :: flag
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Put_notify(origin, count, type, target, at, target_count, target_type, notify, win, &
        ierror) &
        bind(c, name='farside_put_notify_f')
      import
      type(*), dimension(*), intent(in), asynchronous :: origin
      integer(c_int), value :: count, type, target, target_count, target_type, notify, win
      integer(c_intptr_t), value :: at
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Get_notify(origin, count, type, target, at, target_count, target_type, notify, win, &
        ierror) &
        bind(c, name='farside_get_notify_f')
      import
      type(*), dimension(*), asynchronous :: origin
      integer(c_int), value :: count, type, target, target_count, target_type, notify, win
      integer(c_intptr_t), value :: at
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Accumulate_notify(origin, count, type, target, at, target_count, target_type, op, notify, &
        win, ierror) &
        bind(c, name='farside_accumulate_notify_f')
      import
      type(*), dimension(*), intent(in), asynchronous :: origin
      integer(c_int), value :: count, type, target, target_count, target_type, op, notify, win
      integer(c_intptr_t), value :: at
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Get_accumulate_notify(origin, count, type, result, result_count, result_type, target, at, &
        target_count, target_type, op, notify, win, ierror) &
        bind(c, name='farside_get_accumulate_notify_f')
      import
      type(*), dimension(*), intent(in), asynchronous :: origin
      type(*), dimension(*), asynchronous :: result
      integer(c_int), value :: count, type, result_count, result_type, target, target_count, target_type, op, notify, win
      integer(c_intptr_t), value :: at
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Rput_notify(origin, count, type, target, at, target_count, target_type, notify, win, &
        request, ierror) &
        bind(c, name='farside_rput_notify_f')
      import
      type(*), dimension(*), intent(in), asynchronous :: origin
      integer(c_int), value :: count, type, target, target_count, target_type, notify, win
      integer(c_intptr_t), value :: at
      integer(c_int), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Rget_notify(origin, count, type, target, at, target_count, target_type, notify, win, &
        request, ierror) &
        bind(c, name='farside_rget_notify_f')
      import
      type(*), dimension(*), asynchronous :: origin
      integer(c_int), value :: count, type, target, target_count, target_type, notify, win
      integer(c_intptr_t), value :: at
      integer(c_int), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Raccumulate_notify(origin, count, type, target, at, target_count, target_type, op, notify, &
        win, request, ierror) &
        bind(c, name='farside_raccumulate_notify_f')
      import
      type(*), dimension(*), intent(in), asynchronous :: origin
      integer(c_int), value :: count, type, target, target_count, target_type, op, notify, win
      integer(c_intptr_t), value :: at
      integer(c_int), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
    subroutine MPIX_Rget_accumulate_notify(origin, count, type, result, result_count, result_type, target, at, &
        target_count, target_type, op, notify, win, request, ierror) &
        bind(c, name='farside_rget_accumulate_notify_f')
      import
      type(*), dimension(*), intent(in), asynchronous :: origin
      type(*), dimension(*), asynchronous :: result
      integer(c_int), value :: count, type, result_count, result_type, target, target_count, target_type, op, notify, win
      integer(c_intptr_t), value :: at
      integer(c_int), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface
end module

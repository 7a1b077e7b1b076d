! SPDX-License-Identifier: BSD-3-Clause
! Coarrays of Fortran (OpenCoarrays carries them on MPI windows): remote reads and writes of scalars, arrays and sections;
! coarrays allocated and freed; components of derived types; atomics; locks; critical; events; sync images; collectives.
program coarrays
  use, intrinsic :: iso_fortran_env, only: atomic_int_kind, lock_type, event_type, error_unit, int64
  implicit none
  integer, parameter :: rounds = 50
  type :: bag
    integer :: number
    real(8), allocatable :: values(:)
  end type
  integer :: me, images, right, left
  integer :: scalar[*]
  integer :: row(100)[*]
  real(8) :: matrix(20, 30)[*]
  integer(atomic_int_kind) :: counter[*]
  type(lock_type) :: lock[*]
  type(event_type) :: event[*]
  integer :: guarded[*]
  type(bag) :: stuff[*]

  me = this_image()
  images = num_images()
  right = merge(1, me + 1, me == images)
  left = merge(images, me - 1, me == 1)

  call scalars_and_arrays()
  call sections()
  call allocated()
  call components()
  call atomics()
  call locks()
  call events()
  call collectives()
  sync all

contains

  subroutine check(ok, what)
    logical, intent(in) :: ok
    character(*), intent(in) :: what
    if (ok) return
    write (error_unit, '(a,i0,2a)') 'image ', me, ': not as it should be: ', what
    error stop 1
  end subroutine

  subroutine scalars_and_arrays()
    integer :: i
    scalar = me
    row = [(1000 * me + i, i = 1, 100)]
    sync all
    do i = 1, images
      call check(scalar[i] == i, 'a scalar read')
    end do
    call check(all(row(:)[right] == [(1000 * right + i, i = 1, 100)]), 'an array read')
    sync all
    scalar[right] = 7 * me
    row(11:20)[right] = -me
    sync all
    call check(scalar == 7 * left, 'a scalar written')
    call check(all(row(11:20) == -left) .and. row(10) == 1000 * me + 10 .and. row(21) == 1000 * me + 21, 'part of an array written')
    sync all
    ! From the left to the right, by the one between.
    row(1:5)[right] = row(11:15)[left]
    sync all
    call check(all(row(1:5) == -merge(images, merge(images, left - 1, left == 1) - 1, merge(images, left - 1, left == 1) == 1)), &
               'from one image to another')
    sync all
  end subroutine

  subroutine sections()
    integer :: i, j
    real(8) :: part(5, 6)
    matrix = me
    sync all
    part = reshape([(100d0 * me + i, i = 1, 30)], [5, 6])
    matrix(3:15:3, 30:5:-5)[right] = part
    sync all
    do j = 1, 6
      do i = 1, 5
        call check(matrix(3 * i, 35 - 5 * j) == 100d0 * left + i + 5 * (j - 1), 'a section with strides written')
      end do
    end do
    call check(count(matrix == me) >= 600 - 30, 'what is beside a section')
    call check(all(matrix(3:15:3, 30:5:-5)[right] == part), 'a section with strides read')
    sync all
    matrix(:, 1)[right] = [(dble(i), i = 20, 1, -1)]
    sync all
    call check(all(matrix(:, 1) == [(dble(i), i = 20, 1, -1)]), 'a column written')
    sync all
  end subroutine

  subroutine allocated()
    integer(int64), allocatable :: some(:)[:]
    integer :: i, n
    do n = 1, 20
      allocate (some(10 * n)[*])
      some = me
      sync all
      some(n:n + 3)[right] = [(int(n + i, int64), i = 0, 3)]
      sync all
      call check(all(some(n:n + 3) == [(int(n + i, int64), i = 0, 3)]) .and. some(10 * n) == merge(4_int64, int(me, int64), n == 0), &
                 'an allocated coarray')
      sync all
      deallocate (some)
    end do
  end subroutine

  ! Each image's component is of another size.
  subroutine components()
    integer :: i
    stuff%number = 10 * me
    allocate (stuff%values(me + 2))
    stuff%values = [(dble(100 * me + i), i = 1, me + 2)]
    sync all
    call check(stuff[right]%number == 10 * right, 'a component')
    call check(stuff[right]%values(2) == 100 * right + 2, 'an element of an allocatable component')
    sync all
    stuff[right]%values(1) = -me
    stuff[right]%number = me
    sync all
    call check(stuff%values(1) == -left .and. stuff%number == left, 'a component written')
    sync all
    deallocate (stuff%values)
  end subroutine

  subroutine atomics()
    integer :: i, value, before
    call atomic_define(counter, 0)
    sync all
    do i = 1, rounds
      call atomic_add(counter[1], 1)
      call atomic_fetch_add(counter[1], 2, before)  ! OpenCoarrays 2.10.1 returns nothing in before
    end do
    sync all
    call atomic_ref(value, counter[1])
    call check(value == 3 * rounds * images, 'atomic_add')
    sync all
    if (me == 1) call atomic_define(counter, -1)
    sync all
    call atomic_and(counter[1], not(ishft(1, me)))
    sync all
    call atomic_ref(value, counter[1])
    call check(value == not(ishft(1, images + 1) - 2), 'atomic_and')
    sync all
    ! Raised by compare-and-swap.
    if (me == 1) call atomic_define(counter, 0)
    sync all
    do i = 1, rounds
      call atomic_ref(value, counter[1])
      do
        call atomic_cas(counter[1], before, value, value + 1)
        if (before == value) exit
        value = before
      end do
    end do
    sync all
    call atomic_ref(value, counter[1])
    call check(value == rounds * images, 'atomic_cas')
    sync all
  end subroutine

  subroutine locks()
    integer :: i
    guarded = 0
    sync all
    do i = 1, rounds
      lock (lock[images])
      guarded[images] = guarded[images] + 1
      unlock (lock[images])
      critical
        guarded[1] = guarded[1] + 1
      end critical
    end do
    sync all
    if (images > 1) call check(guarded[images] == rounds * images .and. guarded[1] == rounds * images, 'under a lock')
    sync all
  end subroutine

  subroutine events()
    integer :: i, count
    do i = 1, rounds
      event post (event[right])
      event wait (event)
    end do
    call event_query(event, count)
    sync all
    call check(count == 0, 'events')
    do i = 1, rounds
      scalar = i
      call sync_neighbours()
      call check(scalar[right] == i, 'sync images')
      call sync_neighbours()
    end do
    sync all
  end subroutine

  subroutine sync_neighbours()
    if (images > 2) then
      sync images ([left, right])
    else if (images == 2) then
      sync images (right)
    end if
  end subroutine

  subroutine collectives()
    integer :: value
    real(8) :: largest
    value = me
    call co_sum(value)
    call check(value == images * (images + 1) / 2, 'co_sum')
    largest = sqrt(dble(me))
    call co_max(largest)
    call check(largest == sqrt(dble(images)), 'co_max')
    value = me
    call co_broadcast(value, images)
    call check(value == images, 'co_broadcast')
  end subroutine
end program

# SPDX-License-Identifier: BSD-3-Clause
"""One-sided communication as an mpi4py program does it, nothing of farside: two ranks or more."""
from array import array
import sys

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
right, left = (rank + 1) % size, (rank - 1) % size


def check(got, wanted, what):
    if got != wanted:
        print(f"rank {rank}: {what}: {got}, not {wanted}", file=sys.stderr, flush=True)
        comm.Abort(1)


def run(window, memory):
    """memory: the window's own 8 doubles."""
    assert window.Get_attr(MPI.WIN_SIZE) == 64
    group = window.Get_group()
    check(group.Get_size(), size, "size of the group")
    group.Free()

    # fence
    out = array("d", [10.0 * rank + i for i in range(4)])
    window.Fence()
    window.Put([out, MPI.DOUBLE], right, target=0)
    window.Fence()
    check(list(memory[:4]), [10.0 * left + i for i in range(4)], "put")
    back = array("d", [0.0] * 4)
    window.Get([back, MPI.DOUBLE], right, target=0)
    window.Fence(MPI.MODE_NOSUCCEED)
    check(back, out, "get")

    # locks: everybody adds to everybody
    memory[4] = memory[5] = 0.0
    comm.Barrier()
    one = array("d", [1.0])
    for target in range(size):
        window.Lock(target, MPI.LOCK_SHARED)
        window.Accumulate([one, MPI.DOUBLE], target, target=[4, 1, MPI.DOUBLE], op=MPI.SUM)
        window.Unlock(target)
    window.Lock_all()
    seen = array("d", [-1.0])
    window.Fetch_and_op([one, MPI.DOUBLE], [seen, MPI.DOUBLE], 0, 5, MPI.SUM)
    window.Flush_all()
    window.Unlock_all()
    check(sorted(comm.allgather(seen[0])), [float(i) for i in range(size)], "fetch_and_op")
    window.Lock(rank, MPI.LOCK_EXCLUSIVE)
    check(memory[4], float(size), "accumulate")
    window.Unlock(rank)
    for _ in range(20):
        window.Lock(0, MPI.LOCK_EXCLUSIVE)
        value = array("d", [0.0])
        window.Get([value, MPI.DOUBLE], 0, target=[5, 1, MPI.DOUBLE])
        window.Flush(0)
        value[0] += 1
        window.Put([value, MPI.DOUBLE], 0, target=[5, 1, MPI.DOUBLE])
        window.Unlock(0)
    comm.Barrier()
    window.Lock(0, MPI.LOCK_SHARED)
    window.Get([seen, MPI.DOUBLE], 0, target=[5, 1, MPI.DOUBLE])
    window.Unlock(0)
    check(seen[0], 21.0 * size, "get, add, put under an exclusive lock")
    window.Lock(right, MPI.LOCK_SHARED)
    window.Rget([back, MPI.DOUBLE], right, target=[0, 4, MPI.DOUBLE]).Wait()
    window.Unlock(right)
    check(back, out, "rget")
    comm.Barrier()

    # post, start, complete, wait
    world = comm.Get_group()
    origins, targets = world.Incl([left]), world.Incl([right])
    for turn in range(50):
        out[0] = 1000.0 * turn + rank
        window.Post(origins)
        window.Start(targets)
        window.Put([out, 1, MPI.DOUBLE], right, target=[7, 1, MPI.DOUBLE])
        window.Complete()
        window.Wait()
        check(memory[7], 1000.0 * turn + left, "put between start and complete")
    for each in (origins, targets, world):
        each.Free()

    # compare_and_swap, on integers
    window.Lock(rank, MPI.LOCK_EXCLUSIVE)
    memory[6] = 0.0
    window.Unlock(rank)
    comm.Barrier()
    new, old, result = array("q", [rank + 1]), array("q", [0]), array("q", [-1])
    window.Lock(right, MPI.LOCK_SHARED)
    window.Compare_and_swap(
        [new, MPI.INT64_T], [old, MPI.INT64_T], [result, MPI.INT64_T], right, 6)
    window.Unlock(right)
    check(result[0], 0, "compare_and_swap")
    comm.Barrier()


allocated = MPI.Win.Allocate(64, 8, comm=comm)
memory = memoryview(allocated).cast("B").cast("d")
run(allocated, memory)
memory.release()
allocated.Free()

if "create" in sys.argv:
    own = array("d", [0.0] * 8)
    created = MPI.Win.Create(own, 8, comm=comm)
    run(created, memoryview(own))
    created.Free()

if rank == 0:
    print(f"mpi4py {MPI.Get_version()}, {size} ranks: ok")

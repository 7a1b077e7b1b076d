# SPDX-License-Identifier: BSD-3-Clause
"""halo.c in Python: farside run -n 4 -- python3 halo.py ./libfarside_f.so   (notify.py says how that is made)"""
from array import array
import sys

from mpi4py import MPI
from notify import Notifying

CELLS, STEPS, LEFT, RIGHT = 100, 200, 0, 1


def after(left, cells, right):
    around = [left, *cells, right]
    return array("q", [(around[i] + 2 * around[i + 1] + around[i + 2]) % 1000003 for i in range(len(cells))])


comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
cells = array("q", range(rank * CELLS, (rank + 1) * CELLS))
# A halo of a cell on each side, twice, because a neighbour may be a step ahead; and a counter for each side.
window = MPI.Win.Allocate(4 * 8, 8, comm=comm)
halo = memoryview(window).cast("B").cast("q")
notifying = Notifying(sys.argv[1], window, 2)
window.Lock_all()
for step in range(STEPS):
    at = 2 * (step % 2)
    first, last = cells[:1], cells[-1:]
    notifying.put_notify(first, (rank - 1) % ranks, at + RIGHT, RIGHT)
    notifying.put_notify(last, (rank + 1) % ranks, at + LEFT, LEFT)
    notifying.wait_notify(LEFT, step + 1)
    notifying.wait_notify(RIGHT, step + 1)
    window.Flush_local_all()  # the arrays may be freed
    cells = after(halo[at + LEFT], cells, halo[at + RIGHT])
window.Unlock_all()
halo.release()
window.Free()

# The same on one rank.
expected = array("q", range(ranks * CELLS))
for step in range(STEPS):
    expected = after(expected[-1], expected, expected[0])
if cells != expected[rank * CELLS:(rank + 1) * CELLS]:
    print(f"rank {rank} has wrong cells", flush=True)
    comm.Abort(1)

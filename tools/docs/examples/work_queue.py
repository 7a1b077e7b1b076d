# SPDX-License-Identifier: BSD-3-Clause
"""work_queue.c in Python: farside run -n 3 -- python3 work_queue.py ./libfarside_f.so   (notify.py says how that is made)"""
from array import array
import sys

from mpi4py import MPI
from notify import Notifying

ITEMS, SLOTS, FREED = 500, 8, 0

comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
owners = ranks if rank == 0 else 1
window = MPI.Win.Allocate(8 * SLOTS * owners, 8, comm=comm)
slots = memoryview(window).cast("B").cast("q")
notifying = Notifying(sys.argv[1], window, owners)
window.Lock_all()
for i in range(ITEMS):
    if rank != 0:
        if i >= SLOTS:
            notifying.wait_notify(FREED, i - SLOTS + 1)
        item = array("q", [rank * 1000000 + i])
        notifying.put_notify(item, 0, rank * SLOTS + i % SLOTS, rank)
        window.Flush_local(0)
        continue
    for source in range(1, ranks):
        notifying.wait_notify(source, i + 1)
        if slots[source * SLOTS + i % SLOTS] != source * 1000000 + i:
            print("rank 0 has got a wrong item", flush=True)
            comm.Abort(1)
        notifying.put_notify(array("q"), source, 0, FREED)
window.Unlock_all()
slots.release()
window.Free()

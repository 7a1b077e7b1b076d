# SPDX-License-Identifier: BSD-3-Clause
"""Notified access beside mpi4py, of arrays of int64, by ctypes. It needs a library, which its user makes with the
mpicc of mpi4py's MPI: mpicc -shared -fPIC -I PREFIX/include PREFIX/share/farside/farside_f.c -o libfarside_f.so"""
import ctypes

from mpi4py import MPI

INT64 = MPI.INT64_T.py2f()


class Notifying:
    """A window with `number` counters on this rank. Collective."""

    def __init__(self, library, window, number):
        self.library, self.window = ctypes.CDLL(library), window.py2f()
        self._call("set_num_notify", self.window, MPI.INFO_NULL.py2f(), number)

    def put_notify(self, values, target, at, notify):
        """Puts an array of type 'q'; `notify` is the target's counter."""
        address, count = values.buffer_info()
        self._call("put_notify", ctypes.c_void_p(address), count, INT64, target, ctypes.c_ssize_t(at), count, INT64,
                   notify, self.window)

    def wait_notify(self, notify, threshold):
        self._call("wait_notify", self.window, notify, ctypes.c_longlong(threshold))

    def _call(self, name, *arguments):
        error = ctypes.c_int()
        getattr(self.library, f"farside_{name}_f")(*arguments, ctypes.byref(error))
        if error.value != MPI.SUCCESS:
            raise MPI.Exception(error.value)

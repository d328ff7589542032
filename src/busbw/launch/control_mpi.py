"""The control channel over MPI (mpi4py). Importing this module initialises MPI."""

import ctypes
import sys
from array import array
from importlib.util import find_spec
from typing import Any

import mpi4py

mpi4py.rc.thread_level = "funneled"
# A rank that ends by an exception must end the job; finalising at exit would wait for the others, which wait for it.
mpi4py.rc.finalize = False

_FUNNELED = 1  # MPI_THREAD_FUNNELED of Open MPI and of MPICH


def _initialise() -> None:
    """MPI_Init_thread, called past mpi4py: there it holds the interpreter's lock, and no watchdog could say that it does not return."""
    found = find_spec("mpi4py.MPI")
    library = ctypes.CDLL(found.origin) if found and found.origin else None
    if library is not None and hasattr(library, "MPI_Init_thread"):
        library.MPI_Init_thread(None, None, _FUNNELED, ctypes.byref(ctypes.c_int()))


_initialise()

from mpi4py import MPI  # noqa: E402 - the settings above are read by this import, and it finds MPI initialised

_OPS = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}


class MpiControl:
    """The ranks of one MPI communicator; `comm` is for the engine that measures MPI itself."""

    def __init__(self, comm: MPI.Intracomm, *, world: bool) -> None:
        self.comm = comm
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.library = MPI.Get_library_version().split(",")[0].strip().splitlines()[0]
        self._world = world

    @classmethod
    def join(cls) -> "MpiControl":
        """All ranks of the job."""
        return cls(MPI.COMM_WORLD, world=True)

    def bcast(self, value: Any) -> Any:
        """Process 0's value, on all."""
        return self.comm.bcast(value)

    def gather(self, value: Any) -> list[Any] | None:
        """All values in order of process, on process 0; None elsewhere."""
        return self.comm.gather(value)

    def allgather(self, value: Any) -> list[Any]:
        """All values in order of process, on all."""
        return self.comm.allgather(value)

    def barrier(self) -> None:
        """Returns once all processes have called it."""
        self.comm.Barrier()

    def reduce_all(self, values: list[float], how: str) -> list[float]:
        """Element by element `sum`, `min` or `max` over processes, on all."""
        buffer = array("d", values)
        self.comm.Allreduce(MPI.IN_PLACE, buffer, _OPS[how])
        return buffer.tolist()

    def split(self, color: int) -> "MpiControl":
        """The channel of the processes that gave the same colour (0 or more), in order of rank."""
        return MpiControl(MPI.Intracomm(self.comm.Split(color, self.rank)), world=False)

    def abort(self, code: int, reason: str) -> None:
        """End the whole job on every host; mpirun exits with `code`."""
        sys.stdout.flush()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(code)

    def close(self) -> None:
        """Leave in order; the whole job's channel finalises MPI."""
        if MPI.Is_finalized():
            return
        if self._world:
            MPI.Finalize()
        else:
            self.comm.Free()

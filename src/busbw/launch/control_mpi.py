"""The control channel over MPI (mpi4py). Importing this module initialises MPI."""

import ctypes
import sys
from array import array
from importlib.util import find_spec
from typing import Any

import mpi4py

mpi4py.rc.thread_level = "funneled"
# A rank that ends by an exception must end the job. Finalising at exit would deadlock: the other
# ranks wait for this one.
mpi4py.rc.finalize = False

_FUNNELED = 1  # MPI_THREAD_FUNNELED of Open MPI and of MPICH


def _function(name: str) -> Any:
    """A function of the MPI library that mpi4py uses; None if it cannot be called without mpi4py.

    mpi4py holds the GIL in MPI_Init_thread and MPI_Finalize, and so keeps the watchdog from
    reporting a hang there.
    """
    spec = find_spec("mpi4py.MPI")
    library = ctypes.CDLL(spec.origin) if spec and spec.origin else None
    return getattr(library, name, None)


def _initialise() -> None:
    init_thread, initialized = _function("MPI_Init_thread"), _function("MPI_Initialized")
    if init_thread is None or initialized is None:
        return
    is_initialized = ctypes.c_int()
    initialized(ctypes.byref(is_initialized))
    if not is_initialized.value:  # else mpi4py was imported before, which initialises MPI
        init_thread(None, None, _FUNNELED, ctypes.byref(ctypes.c_int()))


_initialise()

# This import reads the settings above, and initialises MPI.
from mpi4py import MPI  # noqa: E402

_OPS = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}


class MpiControl:
    """The ranks of one MPI communicator. The mpi engine measures `comm`."""

    def __init__(self, comm: MPI.Intracomm, *, world: bool) -> None:
        self.comm = comm
        self.process: int = comm.rank
        self.processes: int = comm.size
        self.library = MPI.Get_library_version().split(",")[0].strip().splitlines()[0]
        self._world = world

    @classmethod
    def join(cls) -> "MpiControl":
        """All ranks of the job."""
        return cls(MPI.COMM_WORLD, world=True)

    def bcast(self, value: Any) -> Any:
        return self.comm.bcast(value)

    def gather(self, value: Any) -> list[Any] | None:
        return self.comm.gather(value)

    def allgather(self, value: Any) -> list[Any]:
        return self.comm.allgather(value)

    def barrier(self) -> None:
        self.comm.Barrier()

    def reduce_all(self, values: list[float], how: str) -> list[float]:
        buffer = array("d", values)
        self.comm.Allreduce(MPI.IN_PLACE, buffer, _OPS[how])
        return buffer.tolist()

    def split(self, color: int) -> "MpiControl":
        return MpiControl(MPI.Intracomm(self.comm.Split(color, self.process)), world=False)

    def abort(self, code: int, reason: str) -> None:
        """End the whole job on every host; mpirun exits with `code`."""
        sys.stdout.flush()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(code)

    def close(self) -> None:
        """Free the communicator; the channel of the whole job finalizes MPI."""
        if MPI.Is_finalized():
            return
        if self._world:
            (_function("MPI_Finalize") or MPI.Finalize)()
        else:
            self.comm.Free()

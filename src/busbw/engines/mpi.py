"""Ranks on CPUs: MPI collectives on host memory, one rank per process.

Every element type and operator can run, also those that MPI lacks.
"""

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from busbw.core.errors import NoMeasurement
from busbw.core.result import EngineLibrary, RankDevice
from busbw.engines import mpi_calls
from busbw.engines.base import CollectiveCall, Engine, Launch, buffer_slice
from busbw.engines.host_memory import HostMemory
from busbw.host.cpu import usable_bytes

LARGEST_COUNT = 2**31 - 1  # Open MPI 5.0 has no large-count collectives


class MpiEngine(Engine):
    """Runs collectives with mpi4py on a communicator of its own.

    Whatever MPI lacks (half, bfloat16, fp8, avg, mulsum) is computed here.
    """

    name = "mpi"
    asynchronous = False

    def __init__(self, comm: MPI.Intracomm, world_rank: int, group: int) -> None:
        self._comm = comm.Dup()
        self._rank, self.size = comm.rank, comm.size
        self._world_rank, self._group = world_rank, group
        self.ranks: Sequence[int] = (comm.rank,)
        self._buffers: dict[str, Any] = {}
        self._marks: dict[int, float] = {}
        self._types = mpi_calls.Types()
        # Repeated in-place reductions overflow to infinity, which is harmless.
        np.seterr(all="ignore")

    def devices(self) -> list[RankDevice]:
        """The process itself, with the processor's name."""
        return [
            RankDevice(
                rank=self._world_rank,
                pid=os.getpid(),
                host=platform.node(),
                index=int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")),
                bus="",
                name=_cpu_name(),
                group=self._group,
                process=self._world_rank,
                memory_bytes=usable_bytes(),
            )
        ]

    def library(self) -> EngineLibrary:
        name, version = MPI.get_vendor()
        import mpi4py

        return EngineLibrary(
            "mpi", 0, {name: ".".join(map(str, version)), "mpi4py": mpi4py.__version__}
        )

    def memory_bytes(self) -> int | None:
        """This host's memory divided by the ranks that share it."""
        local = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        share = usable_bytes() // local.size
        local.Free()
        return share

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        self._buffers = {
            "send": np.empty(max(send_bytes, 1), np.uint8),
            "recv": np.empty(max(recv_bytes, 1), np.uint8),
        }

    def memories(self) -> Sequence[HostMemory]:
        return (HostMemory(self.view),)

    def view(self, call: CollectiveCall, buffer: str) -> Any:
        # MPI's in-place reduce_scatter leaves the result at the start of the buffer, not at the
        # rank's own part.
        at_start = buffer == "recv" and call.collective.name == "reduce_scatter"
        name, used_bytes = buffer_slice(call, 0 if at_start else self._rank, buffer)
        return self._buffers[name][used_bytes]

    def bind(self, call: CollectiveCall) -> Launch:
        count = max(call.send, call.recv)
        if count > LARGEST_COUNT:
            raise NoMeasurement(
                f"{call.collective.name}: {count} elements are more than MPI's count of"
                f" {LARGEST_COUNT}",
                "use a smaller -e, or a wider --datatype",
            )
        messages = mpi_calls.Messages(
            self._comm, self._types, call, self.view(call, "send"), self.view(call, "recv")
        )
        return mpi_calls.CALLS[call.collective.name](messages)

    def fence(self) -> Launch:
        return self._comm.Barrier

    def mark(self, index: int) -> None:
        self._marks[index] = time.perf_counter()

    def elapsed_s(self, first: int, last: int) -> list[float]:
        return [self._marks[last] - self._marks[first]]

    def explained(self, error: Exception) -> Exception:
        """MPI's errors as NoMeasurement."""
        if not isinstance(error, MPI.Exception):
            return error
        reason = error.Get_error_string()
        message = f"MPI failed on rank {self._world_rank} on {platform.node()}: {reason}"
        return NoMeasurement(message, "another rank may have ended first: see the lines above")

    def close(self, *, abort: bool = False) -> None:
        if not abort:
            self._types.free()
            self._comm.Free()


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())

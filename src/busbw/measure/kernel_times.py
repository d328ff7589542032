"""Times of operations by the profiler plugin: switched on before NCCL starts, read after the
communicators have ended.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from busbw.core.env import CAPTURE
from busbw.core.errors import NoMeasurement
from busbw.core.pattern import RECV, SEND
from busbw.host import net_plugin
from busbw.measure import profiler_file
from busbw.measure.profiler_calls import ProfiledCall, read_calls

# The first NCCL that also reports the calls of the application, which distinguishes groups.
KERNEL_TIMES_SINCE = 22800


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """What NCCL ran for one operation, and how long its kernels took."""

    time_us: float | None
    algorithm: str | None
    protocol: str | None
    channels: int | None


class KernelTimes:
    """Records this process' operations while it is open.

    Without the plugin, or with another one, `running` is False.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._stack = ExitStack()
        self.folder: Path | None = None
        if environment.get(CAPTURE.plugin) or environment.get(CAPTURE.folder):
            return
        try:
            library = net_plugin.find()
        except NoMeasurement:
            return
        self.folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="busbw-replay-"))
        )
        os.environ |= {
            CAPTURE.plugin: str(library),
            CAPTURE.folder: str(self.folder),
            CAPTURE.mode: CAPTURE.timed,
        }

    @property
    def running(self) -> bool:
        """Whether NCCL was told to load the plugin."""
        return self.folder is not None

    def by_comm(self) -> list[list[TimedKernel]]:
        """The operations in their order, of each communicator that had any; [] if nothing was
        recorded.

        Communicators are in the order of their creation.
        """
        files = sorted(self.folder.glob("*.capture")) if self.folder else []
        if len(files) != 1:
            return []
        file = profiler_file.read(files[0])
        if file.dropped:
            return []
        by_comm: dict[int, list[ProfiledCall]] = {
            record.comm: [] for record, _ in profiler_file.names(file)
        }
        for call in read_calls(file).calls:
            by_comm[call.comm].append(call)
        return [list(_operations(by_comm[comm])) for comm in sorted(by_comm) if by_comm[comm]]

    def close(self) -> None:
        """Remove the recording and its variables."""
        if self.folder:
            for name in (CAPTURE.plugin, CAPTURE.folder, CAPTURE.mode):
                os.environ.pop(name, None)
        self._stack.close()


def _operations(calls: Sequence[ProfiledCall]) -> Iterator[TimedKernel]:
    """The kernels of each operation: a call, or the sends and receives of one group."""
    end = 0
    while end < len(calls):
        first = end
        end += 1
        while end < len(calls) and _one_operation(calls[first], calls[end]):
            end += 1
        yield _kernel(calls[first:end])


def _one_operation(first: ProfiledCall, other: ProfiledCall) -> bool:
    """Whether both are sends or receives of the same group."""
    functions = {first.function, other.function}
    return functions <= {SEND, RECV} and first.group is not None and other.group == first.group


def _kernel(calls: Sequence[ProfiledCall]) -> TimedKernel:
    spans = [call.gpu_ns for call in calls if call.gpu_ns]
    time_us = None
    if len(spans) == len(calls):
        time_us = (max(end for _, end in spans) - min(start for start, _ in spans)) / 1000
    return TimedKernel(time_us, calls[0].algorithm, calls[0].protocol, calls[0].channels)

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
from busbw.measure import profiler_calls, profiler_file
from busbw.measure.profiler_calls import Called

# the NCCL that reports the application's own calls too, so that groups can be told apart
SINCE = 22800


@dataclass(frozen=True, slots=True)
class Kernel:
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

    def by_comm(self) -> list[list[Kernel]]:
        """The operations on each communicator that had any, in their order; communicators in the
        order of their creation.

        Empty if nothing was recorded.
        """
        files = sorted(self.folder.glob("*.capture")) if self.folder else []
        if len(files) != 1:
            return []
        found = profiler_file.read(files[0])
        if found.dropped:
            return []
        calls: dict[int, list[Called]] = {
            record.comm: [] for record, _ in profiler_file.names(found)
        }
        for called in profiler_calls.calls(found).made:
            calls[called.comm].append(called)
        return [list(_operations(calls[comm])) for comm in sorted(calls) if calls[comm]]

    def close(self) -> None:
        """Forget the recording."""
        if self.folder:
            for name in (CAPTURE.plugin, CAPTURE.folder, CAPTURE.mode):
                os.environ.pop(name, None)
        self._stack.close()


def _operations(calls: Sequence[Called]) -> Iterator[Kernel]:
    """One for each call; sends and receives of one group are one operation."""
    at = 0
    while at < len(calls):
        first = at
        at += 1
        while _same_group(calls[first], calls, at):
            at += 1
        yield _kernel(calls[first:at])


def _same_group(first: Called, calls: Sequence[Called], at: int) -> bool:
    together = (
        first.function in (SEND, RECV) and at < len(calls) and calls[at].function in (SEND, RECV)
    )
    return together and first.group is not None and calls[at].group == first.group


def _kernel(calls: Sequence[Called]) -> Kernel:
    spans = [called.gpu_ns for called in calls if called.gpu_ns]
    time_us = (
        (max(end for _, end in spans) - min(start for start, _ in spans)) / 1000
        if len(spans) == len(calls)
        else None
    )
    return Kernel(time_us, calls[0].algorithm, calls[0].protocol, calls[0].channels)

"""Records with which algorithm, protocol and channels NCCL runs each row, and how it has connected
the ranks.

After the timed operations of a cell one more is run, of which NCCL's profiler interface reports
algorithm, protocol and channels. At all other times NCCL is told to report nothing. Where a release
does not report the name of a kernel over symmetric memory, NCCL's log says it of a further
operation (`logged_kernels`). How ranks are connected is in the log too.
"""

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.env import CAPTURE, temporarily
from busbw.core.errors import NoMeasurement
from busbw.core.ran import (
    MAX_LISTED,
    SENDS,
    LoggedConnections,
    NcclKernel,
    UnlistedConnections,
    counts,
    merged,
)
from busbw.engines.base import Engine, Launch, Profiler
from busbw.engines.nccl_log import Log
from busbw.engines.nccl_profiler import NcclProfiler
from busbw.engines.registry import engine
from busbw.host import nccl_packages, net_plugin
from busbw.launch.control import Control
from busbw.measure.formats import nccl_connections
from busbw.measure.job import SweepJob
from busbw.measure.logged_kernels import LoggedKernels
from busbw.measure.process_groups import Party

FIRST_INTERFACE = 22400  # the first NCCL with a profiler interface that busbw-native has
# First release, the next that reports them, collectives (none: all), and what is not reported:
# src/plugin/profiler.cc, and where calls become tasks, src/enqueue.cc.
UNREPORTED = (
    (22700, 22800, (), "NCCL 2.27 does not report kernels over symmetric memory"),
    (
        22800,
        22900,
        ("all_gather", "alltoall", "gather", "scatter"),
        "NCCL 2.28 does not report collectives of copy engines",
    ),
    (22900, 1 << 31, ("broadcast",), "NCCL 2.29 and newer do not report broadcasts"),
)
KEPT = 16  # kernels of an operation and process: native/crates/plugin/src/what_ran.rs


@dataclass(slots=True)
class OperationCounts:
    """The operations of a run that were asked about, those of which NCCL reported nothing with the
    reason if it is known, and the kernels that a process did not keep; on process 0.
    """

    asked: int = 0
    unknown: int = 0
    reason: str = ""
    lost: int = 0


class KernelRecorder:
    """Records what NCCL runs. `problem` is why it cannot; '' also for an engine without NCCL.

    `counts` are those of all repeats of the run, of `collective`.
    """

    def __init__(
        self,
        opened: Engine,
        control: Control,
        counts: OperationCounts,
        collective: str = "",
        profiler: Profiler | None = None,
        problem: str = "",
        log: LoggedKernels | None = None,
    ) -> None:
        self.problem = problem
        self._log = log  # None if the log of any process says nothing more, or cannot be asked
        self._opened, self._control, self._profiler = opened, control, profiler
        self._counts, self._collective = counts, collective

    @property
    def running(self) -> bool:
        """Whether it records; the same on all processes."""
        return self._profiler is not None

    def record(self, launch: Launch, limit_s: float) -> NcclKernel | None:
        """What NCCL runs for a launch; None if it does not say, and on processes but 0.

        Collective.
        """
        assert self._profiler is not None

        def run() -> None:
            launch()
            self._opened.synchronize(limit_s)

        lost_before = self._profiler.lost
        self._profiler.start()
        try:
            run()
        finally:
            local = self._profiler.stop()
        logged = self._logged(local, run)
        by_process = self._control.gather((local, logged, self._profiler.lost - lost_before))
        if by_process is None:
            return None
        reported = of_all(kernel for kernels, _, _ in by_process for kernel in kernels)
        kernel = of_all(kernel for _, kernels, _ in by_process for kernel in kernels) or reported
        self._counts.asked += 1
        if kernel is None:
            self._counts.unknown += 1
            self._counts.reason = self._counts.reason or self._unreported()
        self._counts.lost += sum(lost for _, _, lost in by_process)
        return kernel

    def _unreported(self) -> str:
        """What this release does not report of this collective; '' if it reports all."""
        nccl = self._opened.library().nccl
        for first, next_release, collectives, reason in UNREPORTED:
            if first <= nccl < next_release and self._collective in (collectives or COLLECTIVES):
                return reason
        return ""

    def _logged(self, reported: Sequence[NcclKernel], run: Callable[[], None]) -> list[NcclKernel]:
        """The kernels that the log names, if any process lacks the name of one. Collective."""
        if self._log is None:
            return []
        asked = float(self._log.is_asked_about(reported))
        is_asked = self._control.reduce_all([asked], "max")[0] > 0
        return self._log.kernels(run) if is_asked else []

    def missing(self) -> str:
        """Why not all rows state what NCCL ran; '' if they do."""
        if self.problem:
            return self.problem
        counts = self._counts
        if counts.unknown:
            reason = f": {counts.reason}" if counts.reason else ""
            return (
                f"NCCL reported nothing of {counts.unknown} of the {counts.asked} operations that"
                f" were asked about{reason}"
            )
        if counts.lost:
            return f"at most {KEPT} kernels per operation are kept, and {counts.lost} more ran"
        return ""


def of_all(kernels: Iterable[NcclKernel]) -> NcclKernel | None:
    """What stands for the kernels of all ranks: the most frequent one; of sends and receives, which
    differ between ranks, the one with most channels.
    """
    counts = Counter(kernels)
    own = Counter({kernel: n for kernel, n in counts.items() if kernel.algorithm != SENDS})
    if own:
        return own.most_common(1)[0][0]
    return max(counts, key=lambda kernel: kernel.channels, default=None)


@contextmanager
def asking(job: SweepJob, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Let NCCL load the profiler plugin into communicators that are created meanwhile.

    Gives why it does not; '' for an engine without NCCL.
    """
    if not engine(job.engine).nccl:
        yield ""
        return
    reason = _refusal(job, environment)
    if reason:
        yield reason
        return
    try:
        NcclProfiler().prepare()
        library = net_plugin.find()
    except NoMeasurement as error:
        yield f"{error.message} on {platform.node()}"
        return
    with temporarily({CAPTURE.plugin: str(library)}):
        yield ""


def _refusal(job: SweepJob, environment: Mapping[str, str]) -> str:
    """Why NCCL is not to load the plugin."""
    if job.compat:
        return "the commands of nccl-tests run only what they time"
    if job.sweep.cudagraph > 0:
        return "NCCL does not report what runs from a CUDA graph (-G)"
    value, file = environment.get(CAPTURE.plugin), ""
    if value is None:  # busbw's own, in the environment, would displace that of a file
        value, file = nccl_packages.set_in_file(CAPTURE.plugin, environment)
    if value:
        where = f" in {file}" if file else ""
        return f"{CAPTURE.plugin}={value} is set{where} on {platform.node()}"
    if environment.get(CAPTURE.folder):
        return f"{CAPTURE.folder} is set on {platform.node()}"
    return ""


def agreed(
    opened: Engine, party: Party, counts: OperationCounts, reason: str, log: Log, collective: str
) -> KernelRecorder:
    """The recorder of an opened engine that runs `collective`: all processes record, or none.

    `reason` is what `asking` gave on this process, and `log` is NCCL's. Collective.
    """
    profiler, problem = _open(opened, reason)
    problems = [text for text in party.world.allgather(problem) if text]
    if problems:
        return KernelRecorder(opened, party.group, counts, collective, problem=problems[0])
    if profiler is None:
        return KernelRecorder(opened, party.group, counts, collective)
    own = LoggedKernels(log, profiler)
    is_asked = party.world.reduce_all([float(own.has_more)], "min")[0] > 0
    asked = own if is_asked else None
    return KernelRecorder(opened, party.group, counts, collective, profiler, log=asked)


def _open(opened: Engine, reason: str) -> tuple[Profiler | None, str]:
    """What asks NCCL in this process, and why it cannot be asked."""
    try:
        profiler = opened.profiler()
    except NoMeasurement as error:
        return None, reason or f"{error.message} on {platform.node()}"
    if profiler is None:
        return None, ""
    if reason:
        return None, reason
    started = profiler.start()
    profiler.stop()
    if started:
        return profiler, ""
    if opened.library().nccl < FIRST_INTERFACE:
        return None, "busbw-native has the profiler interfaces of NCCL 2.24 and newer"
    return None, f"NCCL has not loaded the profiler plugin on {platform.node()}"


def connections(log: Log, party: Party, opened: Engine) -> LoggedConnections | None:
    """How NCCL connected the ranks, by the logs of all processes; None if no log says it, and on
    all processes but 0. Collective.

    `log` numbers the ranks of the communicator, the result those of the job.
    """
    local = dict(zip(opened.ranks, (device.rank for device in opened.devices()), strict=True))
    ranks: dict[int, int] = {}
    for of_process in party.group.allgather(local):
        ranks |= of_process
    own = _renumbered(nccl_connections.read(log.text), ranks)
    total = party.world.reduce_all([len(own.connections)], "sum")[0]
    sends: list[UnlistedConnections] = []
    if total > 2 * MAX_LISTED:  # both ends may name one
        sends = counts(row for row in own.connections if row.sender in local.values())
        limit = max(MAX_LISTED // party.world.processes, 1)
        own.connections = [row for row in own.connections if row.slow][:limit]
    by_process = party.world.gather((own, sends))
    if by_process is None:
        return None
    all_sends = [row for _, rows in by_process for row in rows]
    return merged((part for part, _ in by_process), all_sends)


def _renumbered(ran: LoggedConnections | None, ranks: Mapping[int, int]) -> LoggedConnections:
    """The connections between ranks of the job."""
    if ran is None:
        return LoggedConnections([])
    connections = [
        msgspec.structs.replace(
            row,
            sender=ranks.get(row.sender, row.sender),
            receiver=ranks.get(row.receiver, row.receiver),
        )
        for row in ran.connections
    ]
    return LoggedConnections(connections, ran.rdma)

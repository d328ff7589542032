"""What a sweep asks of the communication library besides operations, from the opening of the
first communicator to the end of the last.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from busbw.core.ran import LoggedConnections
from busbw.core.result import Result
from busbw.engines.base import Engine
from busbw.engines.registry import engine, refuse_network
from busbw.measure.job import SweepJob
from busbw.measure.process_groups import Party

if TYPE_CHECKING:
    from busbw.engines.program import Loop
    from busbw.measure.what_ran import KernelRecorder


class LibrarySession:
    """The session of a library of which a sweep asks nothing more: every one but NCCL, whose
    session is measure.nccl_session.NcclSession. Each method does nothing, or the least.

    `recorder` asks NCCL what it runs. `loop` enqueues operations in place of Python, `loop_name` is
    what the result calls it, and `notes` are on how it is measured.
    """

    recorder: "KernelRecorder | None" = None
    loop: "Loop | None" = None
    loop_name = ""
    notes: tuple[str, ...] = ()

    def __init__(self, job: SweepJob, party: Party) -> None:
        self.job, self.party = job, party

    @contextmanager
    def engine_starts(self, repeat: int) -> Iterator[None]:
        """Around the start of an engine in repeat number `repeat`. Collective."""
        refuse_network(self.job.net, self.job.engine)
        if not self.job.table:
            yield
            return
        from busbw.measure import tuner_table

        with tuner_table.loaded(self.job.table, self.job.engine, self.party.world):
            yield  # the sim engine reads it too

    def engine_started(self, opened: Engine) -> None:
        """Called with each engine after its start. Collective."""

    def confirm(self, result: Result) -> None:
        """Add to a result what the library says of itself. Collective."""

    def connections(self, opened: Engine) -> LoggedConnections | None:
        """How the library connected the ranks. Collective."""
        return None

    def missing(self) -> str:
        """Why not all rows state what NCCL ran; '' if they do, or without NCCL."""
        return ""

    def close(self) -> None:
        """End the session."""


def library_session(job: SweepJob, party: Party) -> LibrarySession:
    if not engine(job.engine).nccl:
        return LibrarySession(job, party)
    from busbw.measure.nccl_session import NcclSession

    return NcclSession(job, party)

"""What a sweep asks of NCCL besides operations: its network, tuner and log, and what it runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from busbw.core.ran import LoggedConnections
from busbw.core.result import Result
from busbw.engines.base import Engine
from busbw.engines.nccl_log import Log
from busbw.measure import nccl_library, network, timed_loop, tuner_table, what_ran
from busbw.measure.job import SweepJob
from busbw.measure.library_session import LibrarySession
from busbw.measure.process_groups import Party


class NcclSession(LibrarySession):
    """The session of NCCL, which PyTorch may use too."""

    def __init__(self, job: SweepJob, party: Party) -> None:
        super().__init__(job, party)
        self._counts = what_ran.OperationCounts()
        self._log: Log | None = None  # since the first communicators
        self._reason = ""  # why NCCL is not asked what it runs

    @contextmanager
    def engine_starts(self, repeat: int) -> Iterator[None]:
        job, world = self.job, self.party.world
        stay = repeat == 0 and not job.compat
        with (
            tuner_table.loaded(job.table, job.engine, world),
            what_ran.asking(job) as self._reason,
            network.starting(job, world, stay=stay) as log,
        ):
            yield
        self._log = self._log or log

    def engine_started(self, opened: Engine) -> None:
        assert self._log is not None
        self.recorder = what_ran.agreed(
            opened, self.party, self._counts, self._reason, self._log, self.job.sweep.collective
        )
        agreed = timed_loop.agreed(opened, self.party.world, self.job.sweep)
        self.loop, self.loop_name = agreed.loop, agreed.name
        self.notes = (agreed.note,) if agreed.note else ()

    def confirm(self, result: Result) -> None:
        assert self._log is not None and self.recorder is not None
        library = result.library
        nccl_library.confirm(self.job.nccl, library)
        library.network = network.agreed(self.job, self.party.world, library, self._log.networks)
        result.ran_unknown = self.recorder.problem
        unconfirmed = network.unconfirmed(self.job, library.network)
        self.notes += (unconfirmed,) if unconfirmed else ()

    def connections(self, opened: Engine) -> LoggedConnections | None:
        if self.job.compat or self._log is None:
            return None
        return what_ran.connections(self._log, self.party, opened)

    def missing(self) -> str:
        return self.recorder.missing() if self.recorder else ""

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

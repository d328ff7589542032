"""Runs a job to its end although backends fail: one that hangs or ends the ranks is left out, and
the job starts again at the size that it had reached.
"""

import os

import msgspec

from busbw.backends.types import (
    BackendRunning,
    BackendsJob,
    BackendsResult,
    BackendsRow,
    SizeMeasured,
)
from busbw.core.errors import BusbwError, Exit
from busbw.core.rank_messages import Working
from busbw.core.sizes import short_size
from busbw.launch import environment
from busbw.measure.events import Ended, Event, Started
from busbw.measure.sink import INTERRUPTED, TERMINATED, Sink
from busbw.measure.start import run
from busbw.measure.target import LaunchTarget


class _Attempt(Sink):
    """One start of the ranks. What it reports goes to `shown`, with the rows of earlier starts, and
    after the result of other rails, `before`.

    `running` is the backend that ran last, with its size.
    """

    def __init__(
        self, shown: Sink, rows: list[BackendsRow], before: BackendsResult | None, *, last: bool
    ) -> None:
        super().__init__(shown.record, shown.frontend)
        self._shown, self._rows, self._before, self._last = shown, rows, before, last
        self.running: BackendRunning | None = None

    @property
    def progress(self) -> bool:
        return self._shown.progress

    def working(self, work: Working) -> None:
        self._shown.working(work)

    def take(self, event: Event) -> None:
        if isinstance(event, BackendRunning):
            self.running = event
            return
        if isinstance(event, Started) and isinstance(event.result, BackendsResult):
            if self._before is not None:
                event.result.follow(self._before)
            for row in self._rows:
                event.result.add(row)
            self.running = None  # what fails from here on is no backend's fault
        if isinstance(event, SizeMeasured):
            self._rows.append(event.row)
            self.running = None
        if isinstance(event, Ended) and not self._last:
            self.record.take(event)  # not shown: other rails follow
        else:
            self._shown.take(event)

    def note(self, text: str) -> None:
        self._shown.note(text)

    def error(self, text: str) -> None:
        self._shown.error(text)

    def run_aborted(self, reason: str) -> str:
        """A failure is kept back: `measure` says it if the job is not started again."""
        return self._shown.run_aborted(reason) if reason in (INTERRUPTED, TERMINATED) else ""


def measure(job: BackendsJob, where: LaunchTarget, sink: Sink) -> BackendsResult | None:
    """Run the job; None on nonzero ranks of a job that another launcher started.

    With rails, the ranks start once with all of them, and once with each: NCCL reads its variables
    once. Raises what ended a job if no backend was running, or if another launcher started the
    ranks.
    """
    result: BackendsResult | None = None
    groups = [job.rails, *([rail] for rail in job.rails if len(job.rails) > 1)]
    for number, rails in enumerate(groups, start=1):
        part = msgspec.structs.replace(job, rails=rails)
        result = _measure(part, where, sink, result, last=number == len(groups))
    return result


def _measure(
    job: BackendsJob, where: LaunchTarget, sink: Sink, before: BackendsResult | None, *, last: bool
) -> BackendsResult | None:
    rows: list[BackendsRow] = []
    dropped: dict[str, str] = {}
    while True:
        attempt = _Attempt(sink, rows, before, last=last)
        again = msgspec.structs.replace(
            job, done=[row.size_bytes for row in rows], dropped=dict(dropped)
        )
        try:
            result = run(again, where, attempt)
        except BusbwError as error:
            failed = attempt.running
            is_rank = environment.detect(os.environ) is not None  # of a job that others started
            if failed is None or failed.name in dropped or is_rank or error.exit is Exit.USAGE:
                sink.run_aborted(error.message)
                raise
            dropped[failed.name] = _reason(failed, error)
            sink.note(f"note: {failed.name} is left out: {dropped[failed.name]}")
        else:
            return result if isinstance(result, BackendsResult) else None


def _reason(failed: BackendRunning, error: BusbwError) -> str:
    where = f"at {short_size(failed.size_bytes)}: " if failed.size_bytes else ""
    return f"{where}{error.message}"

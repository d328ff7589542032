"""Runs a job to its end although backends fail: one that hangs or ends the ranks is left out, and
the job starts again at the size that it had reached.
"""

import os

import msgspec

from busbw.backends.kind import BackendRunning, SizeMeasured
from busbw.backends.rails import group_name
from busbw.backends.types import BackendsJob, BackendsResult, BackendsRow
from busbw.core.errors import BusbwError, Exit
from busbw.core.rank_messages import Working
from busbw.core.sizes import short_size
from busbw.host.rails import SELECTING
from busbw.launch import environment
from busbw.measure.events import Ended, Event, Started, now
from busbw.measure.sink import INTERRUPTED, TERMINATED, Sink
from busbw.measure.start import run
from busbw.measure.target import LaunchTarget


class _Attempt(Sink):
    """One start of the ranks. What it reports goes to `shown`, with the rows of earlier starts. On
    `rails` its end is not shown, as others follow; what those before it had measured is `before`.

    `running` is the backend that ran last, with its size.
    """

    def __init__(
        self, shown: Sink, rows: list[BackendsRow], before: BackendsResult | None, *, rails: bool
    ) -> None:
        super().__init__(shown.record, shown.frontend)
        self._shown, self._rows, self._before, self._rails = shown, rows, before, rails
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
        if isinstance(event, Ended) and self._rails and self.record.result:
            event.add_to(self.record.result)  # for the launcher; the file says it after all rails
        else:
            self._shown.take(event)

    def note(self, text: str) -> None:
        self._shown.note(text)

    def error(self, text: str) -> None:
        self._shown.error(text)

    def run_aborted(self, reason: str) -> str:
        """A failure is kept back: `measure` says it if the job is not started again."""
        if self._rails and self.record.result:
            self.record.result.complete = False
        return self._shown.run_aborted(reason) if reason in (INTERRUPTED, TERMINATED) else ""


def measure(job: BackendsJob, where: LaunchTarget, sink: Sink) -> BackendsResult | None:
    """Run the job; None on nonzero ranks of a job that another launcher started.

    Raises what ended it if no backend was running, or if another launcher started the ranks.
    """
    try:
        return _measure_rails(job, where, sink) if job.rails else _measure(job, where, sink, None)
    except BusbwError as error:
        sink.run_aborted(error.message)
        raise


def _measure_rails(job: BackendsJob, where: LaunchTarget, sink: Sink) -> BackendsResult | None:
    """Start the ranks with all rails, and once with each, as NCCL reads its variables once. Rails
    over which nothing can be measured are left out; raises the last reason if there are no others.
    """
    for name in SELECTING:
        if name in os.environ:
            sink.note(f"note: {name}={os.environ[name]} is set, but --rail selects the NICs")
    failed: BusbwError | None = None
    left_out: dict[str, str] = {}
    groups = [job.rails, *([rail] for rail in job.rails if len(job.rails) > 1)]
    for rails in groups:
        try:
            _measure(msgspec.structs.replace(job, rails=rails), where, sink, _measured(sink))
        except BusbwError as error:
            if error.exit is not Exit.UNKNOWN:
                raise
            if error is not sink.record.problem:  # all is measured; the file is written again
                failed = error
                left_out[group_name(rails)] = error.message
                sink.note(f"note: {group_name(rails)} is left out: {error.message}")
        if result := _measured(sink):
            result.left_out |= left_out
            result.complete = False
    if failed and len(left_out) == len(groups):
        raise failed
    sink.take(Ended(now(), {}))
    if sink.record.problem:
        raise sink.record.problem
    return _measured(sink)


def _measured(sink: Sink) -> BackendsResult | None:
    """What is measured so far; None before any ranks have joined."""
    result = sink.record.result
    return result if isinstance(result, BackendsResult) else None


def _measure(
    job: BackendsJob, where: LaunchTarget, sink: Sink, before: BackendsResult | None
) -> BackendsResult | None:
    """On the rails of the job, after the result of others."""
    rows: list[BackendsRow] = []
    dropped: dict[str, str] = {}
    while True:
        attempt = _Attempt(sink, rows, before, rails=bool(job.rails))
        again = msgspec.structs.replace(
            job, done=[row.size_bytes for row in rows], dropped=dict(dropped)
        )
        try:
            run(again, where, attempt)
        except BusbwError as error:
            failed = attempt.running
            is_rank = environment.detect(os.environ) is not None  # of a job that others started
            if failed is None or failed.name in dropped or is_rank or error.exit is Exit.USAGE:
                raise
            dropped[failed.name] = _reason(failed, error)
            sink.note(f"note: {failed.name} is left out: {dropped[failed.name]}")
        else:
            return _measured(attempt)


def _reason(failed: BackendRunning, error: BusbwError) -> str:
    where = f"at {short_size(failed.size_bytes)}: " if failed.size_bytes else ""
    return f"{where}{error.message}"

"""The result as it grows: events in, one Result out, written to its file after every row."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from busbw.core import wire
from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.core.result import SCHEMA, Result
from busbw.core.sweep import SweepSpec
from busbw.measure.events import Ended, Event, Exchanged, RowDone, Started, Surveyed, Trained
from busbw.model.findings import findings

QUICK_S = 0.05  # a file that takes longer to write is not written anew for every row,
WRITING_SHARE = 0.1  # but so that a tenth of the time goes to it


def encoded(result: Result) -> bytes:
    """busbw.result/1 as files hold it."""
    return msgspec.json.format(wire.encode(result), indent=1) + b"\n"


class Record:
    """Collects one run. `file` is where the result is kept up to date, as `render` gives it; None keeps it in memory alone.

    A file that cannot be written stops nothing: `problem` is what is wrong with it, until a later write works.
    """

    def __init__(self, spec: SweepSpec, file: Path | None, render: Callable[[Result], bytes] = encoded) -> None:
        self.result = Result(schema=SCHEMA, tool="busbw", spec=spec)
        self.file = file
        self.started = False
        self.saved = 0  # rows that the file holds
        self.problem: BusbwError | None = None
        self._render = render
        self._next_write = 0.0
        if file is not None:
            check_writable(file)

    def take(self, event: Event) -> None:
        """Add what an event tells, and write the file."""
        if isinstance(event, Started):
            self.result, self.started = event.result, True
        elif isinstance(event, RowDone):
            self.result.rows.append(event.row)
            self.result.out_of_bounds = event.out_of_bounds
        elif isinstance(event, Trained) and self.result.training:
            self.result.training.runs.append(event.run)
        elif isinstance(event, Surveyed):
            self.result.plan = event.plan
        elif isinstance(event, Exchanged) and self.result.plan:
            self.result.plan.exchanges.append(event.exchange)
        elif isinstance(event, Ended):
            self.result.end, self.result.memory, self.result.complete = event.end, event.memory, True
            self.result.links = event.links
            self.result.findings = findings(self.result, self.result.topology)
        else:
            return
        self._write(last=isinstance(event, Ended))

    def broke_off(self, reason: str) -> None:
        """The run ended early: what there is gets its findings and the reason, and is written."""
        self.result.errors.append(reason)
        if self.started:
            self.result.end = time.strftime("%Y-%m-%d %H:%M:%S")
            self.result.findings = findings(self.result, self.result.topology)
            self._write(last=True)

    def keep(self, file: Path) -> None:
        """Write to a file that nobody named; NoMeasurement when that fails."""
        save(self._render(self.result), file)
        self.file, self.saved = file, self._count()

    def _count(self) -> int:
        """Rows of a sweep, or runs of a training."""
        return len(self.result.training.runs) if self.result.training else len(self.result.rows)

    def _write(self, *, last: bool) -> None:
        start = time.monotonic()
        if self.file is None or (start < self._next_write and not last):
            return
        try:
            save(self._render(self.result), self.file)
            self.saved, self.problem = self._count(), None
        except BusbwError as error:
            self.problem = error
        end = time.monotonic()
        self._next_write = end + (end - start) / WRITING_SHARE if end - start > QUICK_S else 0.0


def save(data: bytes, file: Path) -> None:
    """Write the whole file in one step: a reader sees the old one or the new one. NoMeasurement when it cannot be written."""
    draft = None
    try:
        target = Path(os.path.realpath(file))  # a link stays one
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as draft:
            draft.write(data)
        Path(draft.name).chmod(0o644)
        Path(draft.name).replace(target)
    except OSError as error:
        if draft is not None:
            Path(draft.name).unlink(missing_ok=True)
        raise NoMeasurement(
            f"{file}: {error.strerror or error}", "give --json a path with room; rows measured so far stand above"
        ) from error


def check_writable(file: Path) -> None:
    """UsageError, before anything is measured, when the result could not be written."""
    try:
        target = Path(os.path.realpath(file))
        if file.is_dir():
            raise IsADirectoryError(21, "is a directory")
        if file.exists() and not file.is_file():  # a file would take the place of the device, or of the pipe
            raise OSError(22, "is a device or a pipe")
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}."):
            pass
    except OSError as error:
        raise UsageError(
            f"--json {file}: {error.strerror or error}", "name a file in a directory that exists and can be written"
        ) from error

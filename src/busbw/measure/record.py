"""The result as it grows: events in, one Result out, written to its file after every row."""

import tempfile
from pathlib import Path

import msgspec

from busbw.core.errors import CannotTell, UsageError
from busbw.core.result import SCHEMA, Result
from busbw.core.sweep import SweepSpec
from busbw.measure.events import Ended, Event, RowDone, Started
from busbw.model.findings import findings


class Record:
    """Collects one run. `file` is where the result is kept up to date; None keeps it in memory alone."""

    def __init__(self, spec: SweepSpec, file: Path | None) -> None:
        self.result = Result(schema=SCHEMA, tool="busbw", spec=spec)
        self.file = file
        self.started = False
        self.saved = 0  # rows that the file holds
        if file is not None:
            check_writable(file)

    def take(self, event: Event) -> None:
        """Add what an event tells; a full disk is told, and loses nothing that was measured."""
        if isinstance(event, Started):
            self.result, self.started = event.result, True
        elif isinstance(event, RowDone):
            self.result.rows.append(event.row)
        elif isinstance(event, Ended):
            self.result.end, self.result.out_of_bounds, self.result.memory = event.end, event.out_of_bounds, event.memory
            self.result.complete = True
            self.result.findings = findings(self.result, self.result.topology)
        else:
            return
        if self.file is not None:
            save(self.result, self.file)
            self.saved = len(self.result.rows)


def save(result: Result, file: Path) -> None:
    """Write the whole result in one step: a reader sees the old file or the new one. CannotTell when it cannot be written."""
    draft = None
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as draft:
            draft.write(msgspec.json.format(msgspec.json.encode(result), indent=1))
            draft.write(b"\n")
        Path(draft.name).chmod(0o644)
        Path(draft.name).replace(file)
    except OSError as error:
        if draft is not None:
            Path(draft.name).unlink(missing_ok=True)
        raise CannotTell(f"{file}: {error.strerror or error}", "give --json a path with room; rows measured so far stand above") from error


def check_writable(file: Path) -> None:
    """UsageError, before anything is measured, when the result could not be written."""
    try:
        if file.is_dir():
            raise IsADirectoryError(21, "is a directory")
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}."):
            pass
    except OSError as error:
        raise UsageError(
            f"--json {file}: {error.strerror or error}", "name a file in a directory that exists and can be written"
        ) from error

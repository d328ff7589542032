"""Collects events into the result, and writes it to its file after every row."""

import contextlib
import itertools
import logging
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from busbw.core import json_codec
from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.core.masking import masked
from busbw.core.result import Outcome
from busbw.core.written_file import target_of
from busbw.launch.signal_handlers import defers_signals
from busbw.measure.events import Ended, Event, Started, now
from busbw.model.findings import findings
from busbw.model.rule import Known

LOG = logging.getLogger(__name__)

OWNER_ONLY = 0o600
# A file that takes longer than QUICK_S to write is written less often than after every row, so that
# writing takes at most WRITING_SHARE of the time: of 850 rows, it takes 0.01 to 0.02 s.
QUICK_S = 0.05
WRITING_SHARE = 0.25
# The file is at most this far behind the rows.
LONGEST_WAIT_S = 1.0

FileId = tuple[int, int]  # inode and time of the last change: an inode is used again


def encoded(result: Outcome) -> bytes:
    """A result in the format of files."""
    return msgspec.json.format(json_codec.encode(result), indent=1) + b"\n"


class RunRecord:
    """Collects one run.

    `result` is None until all ranks have joined. `file` is updated with the output of `render`;
    `overwrite` allows it to exist. `known` gives the curves that findings compare with.

    A failed write does not stop the run. `problem` is its error until a later write succeeds.
    Meanwhile the rows go to `elsewhere`, a file of the same name in the working directory, the home
    or the temporary directory.
    """

    def __init__(
        self,
        file: Path | None = None,
        render: Callable[[Any], bytes] = encoded,
        *,
        overwrite: bool = True,
        known: Known | None = None,
    ) -> None:
        self.result: Outcome | None = None
        self.file = file
        self.saved = 0  # rows that the file holds
        self.problem: BusbwError | None = None
        self.elsewhere: Path | None = None
        self._render, self._known = render, known
        self._next_write = 0.0
        self._is_behind = False
        # The file as this run wrote it, and as it may have replaced it when it was interrupted.
        self._own: deque[FileId] = deque(maxlen=2)
        if file is not None:
            check_writable(file, overwrite=overwrite)

    @defers_signals
    def take(self, event: Event) -> None:
        """Add an event and write the file."""
        if isinstance(event, Started):
            self.result = event.result
        elif self.result is None or not event.add_to(self.result):
            return
        ended = isinstance(event, Ended)
        if ended and self.result is not None:
            self.result.findings = findings(self.result, self.result.topology, self._known)
        self._write(last=ended)

    def catch_up(self) -> None:
        """Write rows that were left out of the file, if it is time to write again."""
        if self._is_behind:
            self._write(last=False)

    def run_aborted(self, reason: str) -> None:
        """The run ended early: add the reason and the findings, and write the file."""
        if self.result is not None:
            self.result.errors.append(masked(reason))
            self.result.end = now()
            self.result.findings = findings(self.result, self.result.topology, self._known)
            self._write(last=True)

    @property
    def measured(self) -> int:
        """Rows of a sweep, trainings, or exchanges of a plan."""
        return self.result.measured if self.result else 0

    def keep(self, file: Path) -> None:
        """Write to another file, or to one of its name in a directory that can be written;
        NoMeasurement if there is none.
        """
        data = self._render(self.result)
        try:
            save(data, file)
        except BusbwError:
            other = _save_elsewhere(data, file)
            if other is None:
                raise
            file = other
        self.file, self.saved = file, self.measured

    def _write(self, *, last: bool) -> None:
        start = time.monotonic()
        self._is_behind = self.file is not None and start < self._next_write and not last
        if self.file is None or self._is_behind:
            return
        data = self._render(self.result)
        try:
            self._check_own(self.file)
            save(data, self.file, placing=self._own.append)
            self.saved, self.problem = self.measured, None
            _unlink(self.elsewhere)  # the file has all rows again
            self.elsewhere = None
        except BusbwError as error:
            self._rescue(data, self.file, error)
        end = time.monotonic()
        self._next_write = 0.0
        if end - start > QUICK_S:
            self._next_write = end + min((end - start) / WRITING_SHARE, LONGEST_WAIT_S)

    def _check_own(self, file: Path) -> None:
        """NoMeasurement if another program has replaced the file since this run wrote it."""
        with contextlib.suppress(OSError):  # it was removed
            if self._own and _id(file) not in self._own:
                raise NoMeasurement(
                    f"{file}: another run writes to this file",
                    "give each run a file of its own: --json FILE",
                    options=["json"],
                )

    def _rescue(self, data: bytes, file: Path, error: BusbwError) -> None:
        """The file cannot be written: write elsewhere, and say so in `problem`."""
        self.problem = error
        before = self.elsewhere
        self.elsewhere = _save_elsewhere(data, file, before) if self.measured else None
        if self.elsewhere is not None:
            self.saved = self.measured
            error.add(f"; the rows are in {self.elsewhere} instead")
        if before not in (None, self.elsewhere):
            _unlink(before)


def _save_elsewhere(data: bytes, file: Path, before: Path | None = None) -> Path | None:
    """Write data that cannot be written to `file` to another place, and return it.

    `before` is the place of an earlier write, and is tried first. Other files are not replaced.
    None if no place can be written.
    """
    places = [before] if before is not None else []
    for folder in (Path.cwd, Path.home, lambda: Path(tempfile.gettempdir())):
        # Errors mean that the directory was removed, or that the user has none.
        with contextlib.suppress(OSError, RuntimeError):
            places.append(_free_name(folder() / file.name))
    for place in places:
        with contextlib.suppress(BusbwError, OSError):
            save(data, place)
            return place
    return None


def _free_name(file: Path) -> Path:
    """The file, or the first of `NAME-1.json`, `NAME-2.json` ... that does not exist."""
    name = file
    for number in itertools.count(1):
        if not os.path.lexists(name):
            break
        name = file.with_name(f"{file.stem}-{number}{file.suffix}")
    return name


def _unlink(file: Path | None) -> None:
    if file is not None:
        with contextlib.suppress(OSError):
            file.unlink()


def save(
    data: bytes,
    file: Path,
    hint: str = "",
    *,
    shared: bool = False,
    placing: Callable[[FileId], None] | None = None,
) -> None:
    """Replace the file atomically.

    NoMeasurement if it cannot be written, with `hint` or one about --json. Only its owner can read
    it, whatever the umask, as results may hold more than others should know. A `shared` file, a
    report or a table that other users need, has the mode that the umask gives. `placing` is called
    with the new file before it replaces the old one.
    """
    draft = None
    try:
        target = target_of(file)  # keeps a symbolic link
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as draft:
            draft.write(data)
        Path(draft.name).chmod(0o666 & ~_umask() if shared else OWNER_ONLY)
        if placing is not None:
            placing(_id(Path(draft.name)))
        Path(draft.name).replace(target)
        LOG.debug("wrote %s, %d bytes", target, len(data))
    except OSError as error:
        if draft is not None:
            Path(draft.name).unlink(missing_ok=True)
        message = f"{file}: {error.strerror or error}"
        if hint:
            raise NoMeasurement(message, hint) from error
        raise NoMeasurement(message, "give --json a path with room", options=["json"]) from error


def _id(file: Path) -> FileId:
    status = file.stat()
    return status.st_ino, status.st_mtime_ns


def _umask() -> int:
    """The mask of this process' new files. Setting it to read it would be seen by other threads."""
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    for line in status.splitlines():
        if line.startswith("Umask:"):  # since Linux 4.7
            return int(line.partition(":")[2], 8)
    return 0o077


def check_writable(file: Path, *, overwrite: bool = True, what: str = "") -> None:
    """UsageError if the file could not be written, or would replace one without `overwrite`.

    `what` is the argument that names the file, as the user gave it; by default --json.
    """
    options = [] if what else ["json"]
    what = what or f"--json {file}"
    if not overwrite and file.is_file() and file.stat().st_size:
        hint = "name another file, or replace it with --force"
        raise UsageError(f"{what}: the file exists", hint, options)
    try:
        target = target_of(file)
        if file.is_dir():
            raise IsADirectoryError(21, "is a directory")
        if file.exists() and not file.is_file():  # writing would replace it
            raise OSError(22, "is a device or a pipe")
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}."):
            pass
    except OSError as error:
        hint = "name a file in a directory that exists and can be written"
        raise UsageError(f"{what}: {error.strerror or error}", hint, options) from error

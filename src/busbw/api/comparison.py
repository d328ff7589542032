"""`busbw.compare`: is the second run as fast as the first."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from busbw.api.files import comparable, load_comparable
from busbw.core.comparison import Comparison
from busbw.core.errors import BusbwError, UsageError
from busbw.core.history import machine
from busbw.core.ranges import require_between
from busbw.core.result import Outcome
from busbw.history.place import history_file
from busbw.history.store import LAST, baseline, opened
from busbw.stats import compare as stats
from busbw.stats.compare import Named, what
from busbw.stats.history import Times
from busbw.stats.judging import Limits

LOG = logging.getLogger(__name__)
Run = str | Path | Outcome


def compare(
    before: Run | Sequence[Run],
    after: Run | Sequence[Run],
    *,
    tolerance: float = 0.05,
    confidence: float = 0.95,
    collective: str | None = None,
    history: str | Path | None = None,
) -> Comparison:
    """Compare `after` with `before` cell by cell, as `busbw compare` does.

    A side is a result, its file, or repeated runs of one sweep: a list of these, or a directory.
    `tolerance` and `confidence` are fractions. `collective` is that of logs that do not name it.
    With one run a side, earlier runs of the machine in the history say how much runs differ:
    `history` is its file, by default the one that `busbw history` shows, if there is one.

    UsageError for files that hold neither a sweep nor the result of `busbw backends`, `moe` or
    `overlap`, and for sweeps of two collectives.
    """
    require_between("tolerance", tolerance, 0.0, 10.0)
    require_between("confidence", confidence, 0.5, 1.0)
    first, second = runs("before", before, collective), runs("after", after, collective)
    db = history_file(os.environ) if history is None else Path(history)
    earlier = stored_times(first, second, db, required=history is not None, note=LOG.info)
    return stats.compare(first, second, Limits(tolerance, confidence), earlier)


def runs(side: str, given: Run | Sequence[Run], collective: str | None = None) -> list[Named]:
    """The results of one side, each with the name of its file, or of the side if it has none."""
    if isinstance(given, str | Path):
        return [(file, load_comparable(file, collective)) for file in files_of_runs(str(given))]
    if isinstance(given, Outcome):
        return [(side, comparable(given, side))]
    if not isinstance(given, Sequence) or not given:
        raise UsageError(
            f"{side}: {_kind(given)}, which is no run",
            "give a result, its file, or a list of them: busbw.compare('a.json', 'b.json')",
        )
    return [run for one in given for run in runs(side, one, collective)]


def _kind(given: object) -> str:
    return f"an object of type {type(given).__name__}" if given else repr(given)


def files_of_runs(name: str) -> list[str]:
    """The file, or those of a directory, sorted by name, without hidden ones."""
    path = Path(name)
    if not path.is_dir():
        return [name]
    try:
        visible = [file for file in path.iterdir() if not file.name.startswith(".")]
        files = sorted(str(file) for file in visible if file.is_file())
    except OSError as error:
        raise UsageError(
            f"{name}: {error.strerror}", "name a directory that you can read"
        ) from error
    if not files:
        raise UsageError(
            f"{name}: there are no files in this directory",
            "put the results of repeated runs there: busbw run ... --json",
        )
    return files


def stored_times(
    first: Sequence[Named],
    second: Sequence[Named],
    db: Path,
    *,
    required: bool,
    note: Callable[[str], None],
) -> Times:
    """The stored runs of the machine of both sides; none if the sides are no sweeps, or of
    different machines, or there is no history. One that cannot be read is noted, or an error if it
    is `required`.
    """
    (_, a), (_, b) = first[0], second[0]
    if what(a) or machine(a) != machine(b) or not (required or db.exists()):
        return {}
    try:
        with opened(db, create=False) as history:
            return baseline(history, a, LAST, without=[b])
    except BusbwError as error:
        if required:
            raise
        note(f"note: the history was not read: {error.message}")
        return {}
